-- hold: the penalty of a key, a ban or a block; twin of src/limit/penalty.rs and of Policy::decide in
-- src/limit/policy.rs.
--
-- State   a trailer after the algorithm's state: "<ddddd" and "h" (41 bytes): timestamp in µs, denials in the present
--         window, start of that window, end of the ban, end of the block. The length of every algorithm's state is a
--         multiple of 8, so the length of a record shows whether it has a trailer.
-- TTL     until the last of them ends

local TRAILER = 41
local PEEK, RELEASE = 1, 3
local BANNED, BLOCKED = -1, -2

-- A record's state, or false, and its penalty, or nil.
local function parts_of(record)
  if not record or #record % 8 == 0 then return record, nil end
  if #record % 8 ~= 1 or #record < TRAILER or string.sub(record, -1) ~= "h" then return false, nil end
  local stamp, denials, opened, banned, blocked = struct.unpack("<ddddd", record, #record - TRAILER + 1)
  local is_own = is_whole(stamp) and is_whole(denials) and is_whole(opened)
  if not (is_own and is_whole(banned) and is_whole(blocked)) then return false, nil end
  local hold = { stamp = stamp, denials = denials, opened = opened, banned = banned, blocked = blocked }
  return #record > TRAILER and string.sub(record, 1, #record - TRAILER) or false, hold
end

local function joined(state, hold)
  if not hold then return state or "" end
  return (state or "") .. struct.pack("<ddddd", hold.stamp, hold.denials, hold.opened, hold.banned, hold.blocked) .. "h"
end

-- The penalty at `now`, and whether it was moved because the clock was set back.
local function settled_hold(hold, now)
  if not hold then return { stamp = now, denials = 0, opened = 0, banned = 0, blocked = 0 }, false end
  if hold.stamp <= now + SET_BACK then
    hold.stamp = math.max(now, hold.stamp)
    return hold, false
  end
  local shift = hold.stamp - now
  hold.stamp, hold.opened = now, math.max(0, hold.opened - shift)
  hold.banned, hold.blocked = math.max(0, hold.banned - shift), math.max(0, hold.blocked - shift)
  return hold, true
end

-- The end of the ban or block that is in force, or nil.
local function hold_end(hold)
  if hold.banned > hold.stamp or hold.blocked > hold.stamp then return math.max(hold.banned, hold.blocked) end
  return nil
end

local function hold_lifetime(hold, ban, now)
  local finish = math.max(hold.banned, hold.blocked)
  if ban and hold.denials > 0 then finish = math.max(finish, hold.opened + ban.within) end
  return math.max(0, finish - now)
end

-- Counts a denial; the one that exceeds the number starts the ban.
local function count_denial(hold, ban)
  if hold.denials > 0 and hold.stamp < hold.opened + ban.within then
    hold.denials = hold.denials + 1
  else
    hold.denials, hold.opened = 1, hold.stamp
  end
  if hold.denials >= ban.after then
    hold.denials, hold.opened, hold.banned = 0, 0, math.min(hold.stamp + ban.length, FOREVER)
  end
end

-- A record of `state` and `hold`, unless it equals an empty one, and its lifetime; `lifetime` is that of the state.
local function record_of(state, lifetime, hold, ban, now)
  local rest = hold_lifetime(hold, ban, now)
  return joined(state, rest > 0 and hold or nil), math.max(lifetime, rest)
end

-- Decides a charge of `policy` {step, numbers, ban} on a record. Returns the results of an algorithm, with BANNED or
-- BLOCKED for allowed if one of these denies, and a record for the state.
local function decide_record(policy, record, now, cost, kind, holder)
  local step, numbers, ban = policy.step, policy.numbers, policy.ban
  local state, hold = parts_of(record)
  if kind > PEEK then
    if kind == REFUND then
      if policy.letter == "c" then kind = RELEASE end
    elseif (kind == LATE) == (policy.letter == "c") then
      -- Lost slots are restored by their renewal; other algorithms have none.
      cost = 0
    end
    local allowed, remaining, reset, retry, delay, after, lifetime = step(state, numbers, now, cost, holder, kind)
    if after and hold then after, lifetime = record_of(after, lifetime, hold, ban, now) end
    return allowed, remaining, reset, retry, delay, after, lifetime
  end
  local allowed, remaining, reset, retry, delay, after, lifetime = step(state, numbers, now, cost, holder, TAKE)
  if allowed == 1 and kind == PEEK then after = nil end
  if hold or (ban and allowed == 0) then
    local set_back
    hold, set_back = settled_hold(hold, now)
    local kept = after or state
    local before = hold_end(hold)
    if not before and allowed == 0 and ban then count_denial(hold, ban) end
    local finish = hold_end(hold)
    if finish then
      local _, _, present, _, _, _, alive = step(state, numbers, now, 0, holder, TAKE)
      local rest = finish - now
      local code = hold.blocked > hold.stamp and BLOCKED or BANNED
      reset, retry = math.max(present, rest), retry >= 0 and math.max(retry, rest) or -1
      if before then
        -- Denied independently of the quota: discard its charge.
        after, kept = nil, state
      end
      if not before or set_back then after, lifetime = record_of(kept, alive, hold, ban, now) end
      return code, 0, reset, retry, 0, after, lifetime
    end
    if after or (allowed == 0 and (ban or set_back)) then
      after, lifetime = record_of(kept, lifetime, hold, ban, now)
    end
  end
  if allowed == 1 and kind == PEEK then
    -- A peek reports the state of the key.
    return step(state, numbers, now, 0, holder, TAKE)
  end
  return allowed, remaining, reset, retry, delay, after, lifetime
end

return decide_record, parts_of, joined, settled_hold
