-- shared: what several algorithms need.
--
-- Every other file but take.lua and change.lua is the body of a function of its own, which runs only when it is
-- needed: each call of the script makes all of its functions anew, so those that it does not need should not be made.
-- The file of an algorithm returns its step, a function
-- In   the state as stored, or false; numbers as its file says; now in µs; cost in units; of a slot the holder,
--      8 bytes, or of a refund or a late charge when the units were taken, in µs; and the manner (see hold.lua). What
--      a refund brings back is exactly what was taken, or less where time has brought back some of it already; "" is
--      what is left of a state that all of it came back to. A late charge is of what time has not brought back, as
--      far as the limit goes.
-- Out  allowed (1 or 0), remaining, reset_after in µs, retry_after in µs (-1: never), delay in µs, the next state
--      or nil, and its lifetime in µs

-- The manner of a charge that takes units if they are there.
local TAKE = 0
-- The manner of one that gives back what another has taken: a third was refused, or the final status does not charge it.
local REFUND = 5
-- The manner of one that was made a while ago, when nobody could be asked.
local LATE = 6

-- How far ahead of the clock a stamp may lie, in µs, before it means that the clock was set back.
local SET_BACK = 1000000

-- How many arguments of take.lua stand before its policies.
local BEFORE_POLICIES = 3

-- The last time that a state can hold; nothing lasts longer.
local FOREVER = 2 ^ 53

-- a / b rounded up, exact for whole numbers up to 2^53, which math.ceil(a / b) is not.
local function div_ceil(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

local function div_floor(a, b)
  return (a - math.fmod(a, b)) / b
end

-- Whether a state can hold this number: all of its numbers are whole, and exact. What has another one was written
-- by somebody else, and is no state.
local function is_whole(number)
  return number >= 0 and number <= FOREVER and number % 1 == 0
end
