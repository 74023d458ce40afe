-- decide: requests of any kind that the fast path of take.lua does not cover.
--
-- In   now in µs; by the indices of their keys the states, and the lifetimes in µs of those to be written
-- Out  a function that decides requests, and one that decides a charge that is a request by itself

local now, states, lifetimes = ...
local policies = {}

local function keep(key, record, lifetime)
  if record then states[key], lifetimes[key] = record, lifetime end
end

local function policy_of(policy_index)
  local policy = policies[policy_index]
  if policy then return policy end
  local text = ARGV[BEFORE_POLICIES + policy_index]
  local letter, options, count = struct.unpack("<BBB", text)
  letter = string.char(letter)
  local numbers = { struct.unpack("<" .. string.rep("d", count), text, 4) }
  -- struct.unpack also returns the position after what it has read.
  numbers[count + 1] = nil
  policy = { letter = letter, step = ALGORITHMS[letter](), numbers = numbers, shadow = options >= 2 }
  if options % 2 == 1 then
    policy.ban = { after = numbers[1], within = numbers[2], length = numbers[3] }
    policy.numbers = { unpack(numbers, 4, count) }
  end
  policies[policy_index] = policy
  return policy
end

local decide_with_penalty

-- Decides a charge on a record; uses penalty.lua only if there is a ban or a block.
local function decide_record(policy, record, cost, kind, holder)
  if kind == TAKE and not policy.ban and (not record or #record % 8 == 0) then
    return policy.step(record, policy.numbers, now, cost, holder, TAKE)
  end
  decide_with_penalty = decide_with_penalty or penalty()
  return decide_with_penalty(policy, record, now, cost, kind, holder)
end

-- Encodes the reply to a charge: one wait, since a denial has no delay, and an allowed charge no retry_after.
local function encoded(allowed, remaining, reset, retry, delay)
  return allowed, remaining, reset, allowed == 1 and delay or retry
end

-- Decides a charge that is a request by itself, which never has to be undone.
local function decide_one(policy_index, key, kind, cost, holder)
  local allowed, remaining, reset, retry, delay, after, lifetime =
    decide_record(policy_of(policy_index), states[key], cost, kind, holder)
  keep(key, after, lifetime)
  return encoded(allowed, remaining, reset, retry, delay)
end

-- Decides the enforcing charges one after the other, and charges them if all are allowed.
local function enforce(charges)
  local passes, before = true, {}
  for _, charge in ipairs(charges) do
    if not charge.policy.shadow then
      if before[charge.key] == nil then before[charge.key] = states[charge.key] end
      charge.result = { decide_record(charge.policy, states[charge.key], charge.cost, charge.kind, charge.holder) }
      passes = passes and charge.result[1] == 1
      if charge.result[1] == 1 and charge.result[6] then states[charge.key] = charge.result[6] end
    end
  end
  if not passes then
    for key, state in pairs(before) do states[key] = state end
  end
  for _, charge in ipairs(charges) do
    if passes and charge.result then
      keep(charge.key, charge.result[6], charge.result[7])
    elseif charge.result and charge.result[1] ~= 1 and charge.result[6] then
      -- What the denial itself changes, without the charges that are undone.
      local allowed, _, _, _, _, after, lifetime =
        decide_record(charge.policy, states[charge.key], charge.cost, charge.kind, charge.holder)
      if allowed ~= 1 then keep(charge.key, after, lifetime) end
    end
  end
  return passes
end

-- Decides a request of several charges; appends their replies to `out`.
local function decide_several(charges, out)
  local passes = enforce(charges)
  for _, charge in ipairs(charges) do
    local result = charge.result
    if charge.policy.shadow then
      result = { decide_record(charge.policy, states[charge.key], charge.cost, charge.kind, charge.holder) }
      if passes or result[1] ~= 1 then keep(charge.key, result[6], result[7]) end
    elseif result[1] == 1 and not passes then
      result = { decide_record(charge.policy, states[charge.key], 0, TAKE, charge.holder) }
    end
    out[#out + 1] = struct.pack("<bddd", encoded(unpack(result, 1, 5)))
  end
end

-- Reads a charge; returns it and the position of the next one.
local function read_charge(requests, at)
  local charge = {}
  charge.key, charge.policy_index, charge.kind, charge.cost, at = struct.unpack("<HHBd", requests, at)
  charge.policy = policy_of(charge.policy_index)
  if charge.policy.letter == "c" then
    charge.holder, at = string.sub(requests, at, at + 7), at + 8
  elseif charge.kind >= REFUND then
    charge.holder, at = struct.unpack("<d", requests, at)
    if charge.kind == LATE then charge.holder = now - charge.holder end
  end
  return charge, at
end

-- Decides `count` requests of `charges` charges each, at position `at`; appends their replies to `out`, and returns the
-- position of the next ones.
local function decide(requests, at, count, charges, out)
  if charges == 1 then
    local charge
    charge, at = read_charge(requests, at)
    for key = charge.key, charge.key + count - 1 do
      out[#out + 1] = struct.pack("<bddd", decide_one(charge.policy_index, key, charge.kind, charge.cost, charge.holder))
    end
    return at
  end
  local all = {}
  for i = 1, charges do all[i], at = read_charge(requests, at) end
  decide_several(all, out)
  return at
end

return decide, decide_one
