-- shared: used by several algorithms.
--
-- Each file except constants.lua, the snippets and the scripts take.lua, take_one.lua and change.lua is a part of a function,
-- which runs only when it is needed: each call of a script creates all of its functions, so those that it does not need should
-- not be created.
-- The file of an algorithm returns its step, a function
-- In   the stored state, or false; numbers as described in its file; now in µs; cost in units; the holder of a slot, 8
--      bytes, or the time in µs at which the units of a refund or a late charge were taken; and the kind of the charge
--      (see take.lua). A refund returns exactly what was taken, less what time has refilled; it leaves "" if all of it
--      came back. A late charge takes what time has not refilled, up to `numbers.most` units, or else the limit: with
--      settled costs a state may exceed it.
-- Out  allowed (1 or 0), remaining, reset_after in µs, retry_after in µs (-1: never), delay in µs, the next state
--      or nil, and its lifetime in µs

-- a / b rounded up, exact for integers up to 2^53, unlike math.ceil(a / b).
local function div_ceil(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

local function div_floor(a, b)
  return (a - math.fmod(a, b)) / b
end

-- Whether a state can hold this number: all of its numbers are integers, and exact. A state with another one was written
-- by another program, and is ignored.
local function is_whole(number)
  return number >= 0 and number <= FOREVER and number % 1 == 0
end

-- The kind of a charge of what a response has cost more than was reserved.
local EXTRA = 8

-- The option of a policy that settles costs. Its letter is in lower case also if it grants units, so that the fast paths, which
-- know no states that exceed their limit, do not know it.
local SETTLES = 8
