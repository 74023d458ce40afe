-- change: blocks a key, lifts its block and ban, or resets it, for `tidegate keys`.
--
-- KEYS     the stored keys of one limit and key, one for each algorithm that the limit could have, so that a block
--          survives a change of the algorithm; some may not exist
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to every TTL
-- ARGV[3]  "block", "unblock" or "reset"
-- ARGV[4]  length of a block in µs
-- Returns  how many of the keys existed
-- A reset drops the grants with the state; a block, and its end, keep both.

--@inline clock
local _, split_record, join_record, updated_penalty = penalty()

local function set(key, record, ttl)
  if record == "" then
    call("DEL", key)
  else
    call("SET", key, record, "PX", string.format("%.0f", ttl))
  end
end

local function change(key, record)
  local state, held = split_record(record)
  local penalty = updated_penalty(held, now)
  if ARGV[3] == "block" then
    penalty.blocked = math.min(penalty.stamp + ARGV[4], FOREVER)
    local ttl = math.ceil((penalty.blocked - now) / 1000) + 1 + ARGV[2]
    set(key, join_record(state, penalty), math.max(ttl, call("PTTL", key)))
  elseif ARGV[3] == "unblock" then
    if record then set(key, join_record(state, nil), math.max(1, call("PTTL", key))) end
  elseif record then
    local rest = math.max(0, penalty.blocked - now)
    local blocked = { stamp = penalty.stamp, denials = 0, opened = 0, banned = 0, blocked = penalty.blocked }
    set(key, join_record(false, rest > 0 and blocked or nil), math.ceil(rest / 1000) + 1 + ARGV[2])
  end
end

local known = 0
for _, key in ipairs(KEYS) do
  local record = call("MGET", key)[1]
  if record then known = known + 1 end
  change(key, record)
end
return tostring(known)
