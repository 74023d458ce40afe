-- take: decides any number of requests, one after the other. Of each, all charges are taken if every one is
-- allowed, and none otherwise. Requests see what those before them in this call have charged.
--
-- The algorithms' files stand in front of this one; they fill ALGORITHMS by the letter that ends a stored key.
--
-- KEYS     stored keys, each once
-- ARGV[1]  policies: each "<Bd" letter and how many numbers, then so many "<d"
-- ARGV[2]  requests: each "<H" how many charges, then of each charge "<HHd" the place of its key in KEYS, the
--          place of its policy, both from 1, and its cost
-- ARGV[3]  now in µs, or "" for this server's own clock
-- ARGV[4]  ms to add to every TTL
-- Returns  of each charge, in order, "<ddddd": allowed, remaining, reset_after µs, retry_after µs (-1: never),
--          delay µs
-- State    one string a key, laid out as its algorithm says; gone at its TTL, when it equals no state
-- A denial writes nothing and leaves the TTL, but for a state that moves because the clock was set back.

local function read_policies(text)
  local policies, at = {}, 1
  while at <= #text do
    local letter, count
    letter, count, at = struct.unpack("<Bd", text, at)
    local policy = { step = ALGORITHMS[string.char(letter)], numbers = {} }
    for i = 1, count do
      policy.numbers[i], at = struct.unpack("<d", text, at)
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

-- Decides one request from `at`; returns where the next one starts.
local function decide(at, out)
  local count
  count, at = struct.unpack("<H", requests, at)
  local steps, passes, before = {}, true, {}
  for i = 1, count do
    local key, place, cost
    key, place, cost, at = struct.unpack("<HHd", requests, at)
    local policy = policies[place]
    if before[key] == nil then before[key] = states[key] end
    local allowed, remaining, reset, retry, delay, after, lifetime =
      policy.step(states[key], policy.numbers, now, cost)
    steps[i] = { key, policy, allowed, remaining, reset, retry, delay, after, lifetime }
    passes = passes and allowed == 1
    if after and allowed == 1 then states[key] = after end
  end
  if not passes then
    for key, state in pairs(before) do states[key] = state end
  end
  for i = 1, count do
    local key, policy, allowed, remaining, reset, retry, delay, after, lifetime = unpack(steps[i], 1, 9)
    if after and (passes or allowed == 0) then
      states[key], lifetimes[key] = after, lifetime
    end
  end
  for i = 1, count do
    local key, policy, allowed, remaining, reset, retry, delay = unpack(steps[i], 1, 7)
    if allowed == 1 and not passes then
      allowed, remaining, reset, retry, delay = policy.step(states[key], policy.numbers, now, 0)
    end
    out[#out + 1] = struct.pack("<ddddd", allowed, remaining, reset, retry, delay)
  end
  return at
end

local out, at = {}, 1
while at <= #requests do at = decide(at, out) end
for key, lifetime in pairs(lifetimes) do
  redis.call("SET", KEYS[key], states[key], "PX", string.format("%.0f", math.ceil(lifetime / 1000) + 1 + ARGV[4]))
end
return table.concat(out)
