-- decide: requests of any kind that the fast path of take.lua does not cover.
--
-- In   now in µs; by the indices of their keys the states, and the lifetimes in µs of those to be written
-- Out  a function that decides requests, and one that decides a charge that is a request by itself

local now, states, lifetimes = ...
local policies = {}

local function keep(key, record, lifetime)
  if record then states[key], lifetimes[key] = record, lifetime end
end

local function policy_at(place)
  local policy = policies[place]
  if policy then return policy end
  local text = ARGV[BEFORE_POLICIES + place]
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
  policies[place] = policy
  return policy
end

local careful

-- Decides a charge on a record; uses hold.lua only if there is a ban or a block.
local function decide_record(policy, record, cost, kind, holder)
  if kind == TAKE and not policy.ban and (not record or #record % 8 == 0) then
    return policy.step(record, policy.numbers, now, cost, holder, TAKE)
  end
  careful = careful or hold()
  return careful(policy, record, now, cost, kind, holder)
end

-- Encodes the reply to a charge: one wait, since a denial has no delay, and an allowed charge no retry_after.
local function shown(allowed, remaining, reset, retry, delay)
  return allowed, remaining, reset, allowed == 1 and delay or retry
end

-- Decides a charge that is a request by itself, which never has to be undone.
local function decide_one(place, key, kind, cost, holder)
  local allowed, remaining, reset, retry, delay, after, lifetime =
    decide_record(policy_at(place), states[key], cost, kind, holder)
  keep(key, after, lifetime)
  return shown(allowed, remaining, reset, retry, delay)
end

-- Decides the enforcing charges one after the other, and charges them if all are allowed.
local function enforce(charges)
  local passes, before = true, {}
  for _, it in ipairs(charges) do
    if not it.policy.shadow then
      if before[it.key] == nil then before[it.key] = states[it.key] end
      it.result = { decide_record(it.policy, states[it.key], it.cost, it.kind, it.holder) }
      passes = passes and it.result[1] == 1
      if it.result[1] == 1 and it.result[6] then states[it.key] = it.result[6] end
    end
  end
  if not passes then
    for key, state in pairs(before) do states[key] = state end
  end
  for _, it in ipairs(charges) do
    if passes and it.result then
      keep(it.key, it.result[6], it.result[7])
    elseif it.result and it.result[1] ~= 1 and it.result[6] then
      -- What the denial itself changes, without the charges that are undone.
      local allowed, _, _, _, _, after, lifetime =
        decide_record(it.policy, states[it.key], it.cost, it.kind, it.holder)
      if allowed ~= 1 then keep(it.key, after, lifetime) end
    end
  end
  return passes
end

-- Decides a request of several charges; appends their replies to `out`.
local function decide_several(charges, out)
  local passes = enforce(charges)
  for _, it in ipairs(charges) do
    local result = it.result
    if it.policy.shadow then
      result = { decide_record(it.policy, states[it.key], it.cost, it.kind, it.holder) }
      if passes or result[1] ~= 1 then keep(it.key, result[6], result[7]) end
    elseif result[1] == 1 and not passes then
      result = { decide_record(it.policy, states[it.key], 0, TAKE, it.holder) }
    end
    out[#out + 1] = struct.pack("<bddd", shown(unpack(result, 1, 5)))
  end
end

-- Reads a charge; returns it and the position of the next one.
local function read_charge(requests, at)
  local it = {}
  it.key, it.place, it.kind, it.cost, at = struct.unpack("<HHBd", requests, at)
  it.policy = policy_at(it.place)
  if it.policy.letter == "c" then
    it.holder, at = string.sub(requests, at, at + 7), at + 8
  elseif it.kind >= REFUND then
    it.holder, at = struct.unpack("<d", requests, at)
    if it.kind == LATE then it.holder = now - it.holder end
  end
  return it, at
end

-- Decides `count` requests of `charges` charges each, at position `at`; appends their replies to `out`, and returns the
-- position of the next ones.
local function decide(requests, at, count, charges, out)
  if charges == 1 then
    local it
    it, at = read_charge(requests, at)
    for key = it.key, it.key + count - 1 do
      out[#out + 1] = struct.pack("<bddd", decide_one(it.place, key, it.kind, it.cost, it.holder))
    end
    return at
  end
  local all = {}
  for i = 1, charges do all[i], at = read_charge(requests, at) end
  decide_several(all, out)
  return at
end

return decide, decide_one
