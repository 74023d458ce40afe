-- take: decides any number of requests, one after the other. Of each, all charges are taken if every one that
-- enforces is allowed, and none otherwise. Requests see what those before them in this call have charged.
--
-- The other files stand in front of this one, those of the algorithms in ALGORITHMS, by the letter that ends a
-- stored key; see shared.lua.
--
-- KEYS     stored keys, each once
-- ARGV[1]  policies: each "<BBB" letter, options (1: a ban; 2: shadow) and how many numbers, then so many "<d"; of
--          a ban the first three are after how many denials, within which time and for how long, in µs
-- ARGV[2]  requests: each "<H" how many charges, then of each charge "<HHBd" the place of its key in KEYS, the
--          place of its policy, both from 1, its manner (0 take, 1 look, 2 force, 3 give back, 4 renew, 5 refund,
--          6 late) and its cost; of a concurrency limit 8 bytes more: who holds the slot; of another's refund "<d" when
--          the units were taken, in µs, and of its late charge "<d" how long ago
-- ARGV[3]  now in µs, or "" for this server's own clock
-- ARGV[4]  ms to add to every TTL
-- Returns  of each charge, in order, "<ddddd": allowed (1; 0 the quota, -1 a ban, -2 a block refuses), remaining,
--          reset_after µs, retry_after µs (-1: never), delay µs; and at the end "<d" now in µs
-- State    one string a key, laid out as its algorithm and hold.lua say; gone at its TTL, when it equals no state
-- A denial writes nothing and leaves the TTL, but for a state that moves because the clock was set back, and for
-- denials that count towards a ban.

local function read_policies(text)
  local policies, at = {}, 1
  while at <= #text do
    local letter, options, count
    letter, options, count, at = struct.unpack("<BBB", text, at)
    letter = string.char(letter)
    local numbers = { struct.unpack("<" .. string.rep("d", count), text, at) }
    -- struct.unpack also says where it stopped.
    at, numbers[count + 1] = numbers[count + 1], nil
    local policy = { letter = letter, step = ALGORITHMS[letter](), numbers = numbers, shadow = options >= 2 }
    if options % 2 == 1 then
      policy.ban = { after = numbers[1], within = numbers[2], length = numbers[3] }
      policy.numbers = { unpack(numbers, 4, count) }
    end
    policies[#policies + 1] = policy
  end
  return policies
end

local function clock(given)
  if given ~= "" then return tonumber(given) end
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end

local policies = read_policies(ARGV[1])
local requests = ARGV[2]
local now = clock(ARGV[3])
local states = redis.call("MGET", unpack(KEYS))
local lifetimes = {}

local function keep(key, record, lifetime)
  if record then states[key], lifetimes[key] = record, lifetime end
end

-- Reads a charge; returns it and where the next one starts.
local function read_charge(at)
  local key, place, manner, cost
  key, place, manner, cost, at = struct.unpack("<HHBd", requests, at)
  local policy, holder = policies[place], nil
  if policy.letter == "c" then
    holder, at = string.sub(requests, at, at + 7), at + 8
  elseif manner >= REFUND then
    holder, at = struct.unpack("<d", requests, at)
    if manner == LATE then holder = now - holder end
  end
  return key, policy, manner, cost, holder, at
end

local function pack(out, allowed, remaining, reset, retry, delay)
  out[#out + 1] = struct.pack("<ddddd", allowed, remaining, reset, retry, delay)
end

local careful

-- Decides a charge on a record; see hold.lua, which is needed only where there is a ban or a block to mind.
local function decide_record(policy, record, now, cost, manner, holder)
  if manner == TAKE and not policy.ban and (not record or #record % 8 == 0) then
    return policy.step(record, policy.numbers, now, cost, holder, TAKE)
  end
  careful = careful or hold()
  return careful(policy, record, now, cost, manner, holder)
end

-- Makes what decides requests of several charges.
local function several()

-- Decides those that enforce, one after the other, and charges them if every one allows.
local function enforce(charges)
  local passes, before = true, {}
  for _, it in ipairs(charges) do
    if not it.policy.shadow then
      if before[it.key] == nil then before[it.key] = states[it.key] end
      it.said = { decide_record(it.policy, states[it.key], now, it.cost, it.manner, it.holder) }
      passes = passes and it.said[1] == 1
      if it.said[1] == 1 and it.said[6] then states[it.key] = it.said[6] end
    end
  end
  if not passes then
    for key, state in pairs(before) do states[key] = state end
  end
  for _, it in ipairs(charges) do
    if passes and it.said then
      keep(it.key, it.said[6], it.said[7])
    elseif it.said and it.said[1] ~= 1 and it.said[6] then
      -- What the denial itself changes, without what was charged for nothing.
      local allowed, _, _, _, _, after, lifetime =
        decide_record(it.policy, states[it.key], now, it.cost, it.manner, it.holder)
      if allowed ~= 1 then keep(it.key, after, lifetime) end
    end
  end
  return passes
end

-- Decides a request of several charges from `at`; returns where the next one starts.
local function decide_all(count, at, out)
  local charges = {}
  for i = 1, count do
    local it = {}
    it.key, it.policy, it.manner, it.cost, it.holder, at = read_charge(at)
    charges[i] = it
  end
  local passes = enforce(charges)
  for _, it in ipairs(charges) do
    local said = it.said
    if it.policy.shadow then
      said = { decide_record(it.policy, states[it.key], now, it.cost, it.manner, it.holder) }
      if passes or said[1] ~= 1 then keep(it.key, said[6], said[7]) end
    elseif said[1] == 1 and not passes then
      said = { decide_record(it.policy, states[it.key], now, 0, TAKE, it.holder) }
    end
    pack(out, unpack(said, 1, 5))
  end
  return at
end

return decide_all
end

local decide_all

local function decide(at, out)
  local count
  count, at = struct.unpack("<H", requests, at)
  if count ~= 1 then
    decide_all = decide_all or several()
    return decide_all(count, at, out)
  end
  -- By far the most common: one charge needs no second thought.
  local key, policy, manner, cost, holder
  key, policy, manner, cost, holder, at = read_charge(at)
  local allowed, remaining, reset, retry, delay, after, lifetime =
    decide_record(policy, states[key], now, cost, manner, holder)
  keep(key, after, lifetime)
  pack(out, allowed, remaining, reset, retry, delay)
  return at
end

local out, at = {}, 1
while at <= #requests do at = decide(at, out) end
for key, lifetime in pairs(lifetimes) do
  if lifetime > 0 then
    local ttl = math.ceil(lifetime / 1000) + 1 + ARGV[4]
    redis.call("SET", KEYS[key], states[key], "PX", string.format("%.0f", ttl))
  else
    redis.call("DEL", KEYS[key])
  end
end
out[#out + 1] = struct.pack("<d", now)
return table.concat(out)
