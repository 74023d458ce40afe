-- change: blocks a key, lifts its block and ban, or resets it, for `tidegate keys`.
--
-- KEYS     the stored keys of one limit and key, one for each algorithm that the limit could have, so that a block
--          survives a change of the algorithm; some may not exist
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to every TTL
-- ARGV[3]  "block", "unblock" or "reset"
-- ARGV[4]  length of a block in µs
-- Returns  how many of the keys existed

local function clock(given)
  if given ~= "" then return tonumber(given) end
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end

local now = clock(ARGV[1])
local _, parts_of, joined, settled_hold = hold()

local function set(key, record, ttl)
  if record == "" then
    redis.call("DEL", key)
  else
    redis.call("SET", key, record, "PX", string.format("%.0f", ttl))
  end
end

local function change(key, record)
  local state, kept = parts_of(record)
  local hold = settled_hold(kept, now)
  if ARGV[3] == "block" then
    hold.blocked = math.min(hold.stamp + ARGV[4], FOREVER)
    local ttl = math.ceil((hold.blocked - now) / 1000) + 1 + ARGV[2]
    set(key, joined(state, hold), math.max(ttl, redis.call("PTTL", key)))
  elseif ARGV[3] == "unblock" then
    if record then set(key, joined(state, nil), math.max(1, redis.call("PTTL", key))) end
  elseif record then
    local rest = math.max(0, hold.blocked - now)
    local blocked = { stamp = hold.stamp, denials = 0, opened = 0, banned = 0, blocked = hold.blocked }
    set(key, joined(false, rest > 0 and blocked or nil), math.ceil(rest / 1000) + 1 + ARGV[2])
  end
end

local known = 0
for _, key in ipairs(KEYS) do
  local record = redis.call("MGET", key)[1]
  if record then known = known + 1 end
  change(key, record)
end
return tostring(known)
