-- decide: requests of any kind that the fast path of take.lua does not cover.
--
-- In   now in µs; by the indices of their keys the states, the lifetimes in µs of those to be written, and the deadlines of
--      those that can be overwritten in place
-- Out  a function that decides requests, and one that decides a charge that is a request by itself

local now, states, lifetimes, deadlines = ...
-- Bytes of a record that has only a penalty.
local PENALTY = 41
local policies = {}
local step_with_grants, report, grant

local function keep(key, record, lifetime)
  if record then states[key], lifetimes[key], deadlines[key] = lifetime > 0 and record or "", lifetime, nil end
end

-- The state in a record without penalty of a limit with reservations, or false, and when it was created.
local function split_creation(record)
  local created = record and #record > 8 and struct.unpack("<d", record)
  if created and is_whole(created) then return string.sub(record, 9), created end
  return false, now
end

local function join_creation(state, created)
  return state and state ~= "" and struct.pack("<d", created) .. state or state
end

-- The step of a limit with reservations. A refund applies only to the state that took the units: one that was created later,
-- after a reset or a loss, is not changed. If the limit `refunds_whole`, a debt that has drained is followed by a new one, and
-- all of the units that were taken from the present one are refunded.
local function step_with_creation(step, refunds_whole)
  return function(record, numbers, at, cost, taken, kind)
    local state, created = split_creation(record)
    if kind == REFUND then
      if taken < created then cost = 0 end
      if refunds_whole then taken = FOREVER end
    end
    local allowed, remaining, reset, retry, delay, after, lifetime = step(state, numbers, at, cost, taken, kind)
    if refunds_whole and after and state then
      local _, _, debt = step(state, numbers, at, 0, nil, TAKE)
      if debt == 0 then created = at end
    end
    return allowed, remaining, reset, retry, delay, join_creation(after, created), lifetime
  end
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
  letter = string.lower(letter)
  local records_creation = not ALGORITHMS[letter]
  if records_creation then letter = string.char(string.byte(letter) + WITH_CREATION) end
  policy = { letter = letter, numbers = numbers, shadow = options % GRANTS >= 2, records_creation = records_creation }
  policy.step, policy.window = ALGORITHMS[policy.letter]()
  local first = 1
  if options % 2 == 1 then
    policy.ban = { after = numbers[1], within = numbers[2], length = numbers[3] }
    first = 4
  end
  if options % SETTLES >= GRANTS then
    policy.span, policy.share = numbers[first], numbers[first + 1]
    first = first + 2
    if not step_with_grants then step_with_grants, report, grant = grants() end
    policy.algorithm = policy.step
    policy.step = step_with_grants(policy)
  end
  local settles, most = options >= SETTLES, nil
  if settles then most, first = numbers[first], first + 1 end
  if first > 1 then policy.numbers = { unpack(numbers, first, count) } end
  policy.numbers.most = most
  if policy.records_creation then
    local is_debt = letter == "b" or letter == "g" or letter == "i"
    policy.step = step_with_creation(policy.step, settles and is_debt and not policy.span)
  end
  policies[policy_index] = policy
  return policy
end

-- Prepares the record of a key. The deadline behind a debt is left out: what is written here has a lifetime of its own. And no
-- state was created in the future, since clocks of proxies may differ: what is taken now is in it.
local function prepare_record(policy, key)
  local record = states[key]
  if policy.records_creation then
    if record and #record > 8 and #record ~= PENALTY and struct.unpack("<d", record) > now then
      states[key] = struct.pack("<d", now) .. string.sub(record, 9)
    end
    return
  end
  if not record or #record < 32 or not (policy.letter == "b" or policy.letter == "g") then return end
  local trailers = ({ [0] = 0, string.sub(record, -1) == "r" and 49 or 41, 90 })[#record % 8]
  if trailers and #record - trailers == 32 then states[key] = string.sub(record, 1, 24) .. string.sub(record, 33) end
end

local decide_with_penalty, split_record, record_with_penalty

local function need_penalty()
  if not decide_with_penalty then
    local _
    decide_with_penalty, split_record, _, _, record_with_penalty = penalty()
  end
end

-- Whether a record can have no penalty, so that penalty.lua is not needed.
local function has_no_penalty(policy, record)
  return not record or #record % 8 == 0 or (policy.span and string.sub(record, -1) == "r")
end

-- Decides a charge on a record; uses penalty.lua only if there is a ban or a block.
local function decide_record(policy, record, cost, kind, holder)
  if kind == TAKE and not policy.ban and has_no_penalty(policy, record) then
    return policy.step(record, policy.numbers, now, cost, holder, TAKE)
  end
  need_penalty()
  return decide_with_penalty(policy, record, now, cost, kind, holder)
end

-- Replaces the state in a record of `key` by what `change` returns for it, if anything: the state and its lifetime. Returns
-- the further results of `change`.
local function change_state(charge, change, ...)
  local policy, record = charge.policy, states[charge.key]
  local state, held = record, nil
  if not has_no_penalty(policy, record) then
    need_penalty()
    state, held = split_record(record)
  end
  local created
  if policy.records_creation then state, created = split_creation(state) end
  local results = { change(policy, state, now, ...) }
  local next_record, lifetime = created and join_creation(results[1], created) or results[1], results[2]
  if next_record and held then
    next_record, lifetime = record_with_penalty(next_record, lifetime, held, policy.ban, now)
  end
  keep(charge.key, next_record, lifetime)
  return next_record, unpack(results, 3, 8)
end

-- Encodes the reply to a charge: one wait, since a denial has no delay, and an allowed charge no retry_after.
local function encoded(allowed, remaining, reset, retry, delay)
  return allowed, remaining, reset, allowed == 1 and delay or retry
end

-- Decides a charge that is a request by itself, which never has to be undone.
local function decide_one(policy_index, key, kind, cost, holder)
  local policy = policy_of(policy_index)
  prepare_record(policy, key)
  local allowed, remaining, reset, retry, delay, after, lifetime =
    decide_record(policy, states[key], cost, kind, holder)
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

-- Grants units after the decision on a charge, which has `result`, and returns the grant's part of the reply. There is none
-- if the charge is not made, unless its own limit denies it, nor for a key that is banned or blocked.
local function grant_units(charge, passes, result)
  local units, opened, lasts, first = 0, 0, 0, -1
  if charge.policy.span and result[1] >= 0 and (passes or result[1] == 0) then
    local granted, remaining, reset, of_grant, opened_at, rest, wait =
      change_state(charge, grant, charge.grant_request.wanted, result[1] == 0)
    if granted then
      result[2], result[3] = remaining, reset
      units, opened, lasts, first = of_grant, opened_at, rest, wait
    end
  end
  return struct.pack("<dddd", units, opened, lasts, first)
end

-- Decides a request of several charges; appends their replies to `out`. Reports are applied first, and stay even if the
-- request is denied. Units are granted at last.
local function decide_several(charges, out)
  for _, charge in ipairs(charges) do
    local request = charge.policy.span and charge.grant_request
    if request and request.opened > 0 then change_state(charge, report, request) end
  end
  local passes = enforce(charges)
  for _, charge in ipairs(charges) do
    local result = charge.result
    if charge.policy.shadow then
      result = { decide_record(charge.policy, states[charge.key], charge.cost, charge.kind, charge.holder) }
      if passes or result[1] ~= 1 then keep(charge.key, result[6], result[7]) end
    elseif result[1] == 1 and not passes then
      result = { decide_record(charge.policy, states[charge.key], 0, TAKE, charge.holder) }
    end
    charge.result = result
  end
  for _, charge in ipairs(charges) do
    local granted = charge.grant_request and grant_units(charge, passes, charge.result) or ""
    out[#out + 1] = struct.pack("<bddd", encoded(unpack(charge.result, 1, 5))) .. granted
  end
end

-- Reads a charge; returns it and the position of the next one.
local function read_charge(requests, at)
  local charge = {}
  charge.key, charge.policy_index, charge.kind, charge.cost, at = struct.unpack("<HHBd", requests, at)
  charge.policy = policy_of(charge.policy_index)
  prepare_record(charge.policy, charge.key)
  if charge.kind == GRANT then
    local request = {}
    request.opened, request.finish, request.spent, request.returned, request.wanted, at = struct.unpack("<ddddd", requests, at)
    -- It is decided like any other that takes units.
    charge.kind, charge.grant_request = TAKE, request
  end
  if charge.policy.letter == "c" then
    charge.holder, at = string.sub(requests, at, at + 7), at + 8
  elseif charge.kind >= REFUND and charge.kind ~= EXTRA then
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
    if charge.grant_request then
      decide_several({ charge }, out)
      return at
    end
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
