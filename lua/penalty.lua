-- penalty: bans and blocks of a key; twin of crates/limit/src/limit/penalty.rs and of Policy::decide in crates/limit/src/limit/policy.rs.
--
-- State   a trailer after the algorithm's state: "<ddddd" and "h" (41 bytes): timestamp in µs, denials in the present
--         window, start of that window, end of the ban, end of the block. The length of every algorithm's state is a
--         multiple of 8, and with the trailer of grants.lua, which ends with "r", one more.
-- TTL     until the last of them ends

local TRAILER = 41
local RELEASE = 3
local BANNED, BLOCKED = -1, -2

-- A record's state, or false, and its penalty, or nil.
local function split_record(record)
  local last = record and string.sub(record, -1)
  if not record or #record % 8 == 0 or (#record % 8 == 1 and last == "r") then return record, nil end
  if #record % 8 > 2 or #record < TRAILER or last ~= "h" then return false, nil end
  local stamp, denials, opened, banned, blocked = struct.unpack("<ddddd", record, #record - TRAILER + 1)
  local is_own = is_whole(stamp) and is_whole(denials) and is_whole(opened)
  if not (is_own and is_whole(banned) and is_whole(blocked)) then return false, nil end
  local penalty = { stamp = stamp, denials = denials, opened = opened, banned = banned, blocked = blocked }
  return #record > TRAILER and string.sub(record, 1, #record - TRAILER) or false, penalty
end

local function join_record(state, penalty)
  if not penalty then return state or "" end
  local stamp, denials, opened = penalty.stamp, penalty.denials, penalty.opened
  return (state or "") .. struct.pack("<ddddd", stamp, denials, opened, penalty.banned, penalty.blocked) .. "h"
end

-- The penalty at `now`, and whether it was moved because the clock was set back.
local function updated_penalty(penalty, now)
  if not penalty then return { stamp = now, denials = 0, opened = 0, banned = 0, blocked = 0 }, false end
  if penalty.stamp <= now + SET_BACK then
    penalty.stamp = math.max(now, penalty.stamp)
    return penalty, false
  end
  local shift = penalty.stamp - now
  penalty.stamp, penalty.opened = now, math.max(0, penalty.opened - shift)
  penalty.banned, penalty.blocked = math.max(0, penalty.banned - shift), math.max(0, penalty.blocked - shift)
  return penalty, true
end

-- The end of the active ban or block, or nil.
local function penalty_end(penalty)
  local finish = math.max(penalty.banned, penalty.blocked)
  return finish > penalty.stamp and finish or nil
end

local function penalty_lifetime(penalty, ban, now)
  local finish = math.max(penalty.banned, penalty.blocked)
  if ban and penalty.denials > 0 then finish = math.max(finish, penalty.opened + ban.within) end
  return math.max(0, finish - now)
end

-- Counts a denial; the last one of the threshold starts the ban.
local function count_denial(penalty, ban)
  if penalty.denials > 0 and penalty.stamp < penalty.opened + ban.within then
    penalty.denials = penalty.denials + 1
  else
    penalty.denials, penalty.opened = 1, penalty.stamp
  end
  if penalty.denials >= ban.after then
    penalty.denials, penalty.opened, penalty.banned = 0, 0, math.min(penalty.stamp + ban.length, FOREVER)
  end
end

-- The record of `state` and `penalty`, and its lifetime; `lifetime` is that of the state. A penalty without effect is left
-- out.
local function record_of(state, lifetime, penalty, ban, now)
  local rest = penalty_lifetime(penalty, ban, now)
  return join_record(state, rest > 0 and penalty or nil), math.max(lifetime, rest)
end

-- Decides a charge of `policy` {step, numbers, ban} on a record. Returns what the step of an algorithm returns, except that
-- `allowed` is BANNED or BLOCKED if the penalty denies, and that the next state is a record.
local function decide_record(policy, record, now, cost, kind, holder)
  local step, numbers, ban = policy.step, policy.numbers, policy.ban
  local state, penalty = split_record(record)
  if kind > CHECK then
    if kind == REFUND then
      if policy.letter == "c" then kind = RELEASE end
    elseif kind == EXTRA then
      -- Charged as if it were late and taken now. Queues and slots have no units that are charged without asking.
      if policy.letter == "c" or policy.letter == "q" then cost = 0 end
      kind, holder = LATE, FOREVER
    elseif (kind == LATE) == (policy.letter == "c") then
      -- A renewal restores lost slots, so slots are not charged late; other algorithms have nothing to release or renew.
      cost = 0
    end
    local allowed, remaining, reset, retry, delay, after, lifetime = step(state, numbers, now, cost, holder, kind)
    if after and penalty then after, lifetime = record_of(after, lifetime, penalty, ban, now) end
    return allowed, remaining, reset, retry, delay, after, lifetime
  end
  local allowed, remaining, reset, retry, delay, after, lifetime = step(state, numbers, now, cost, holder, TAKE)
  if allowed == 1 and kind == CHECK then after = nil end
  if penalty or (ban and allowed == 0) then
    local set_back
    penalty, set_back = updated_penalty(penalty, now)
    local kept = after or state
    local before = penalty_end(penalty)
    if not before and allowed == 0 and ban then count_denial(penalty, ban) end
    local finish = penalty_end(penalty)
    if finish then
      local _, _, present, _, _, settled, alive = step(state, numbers, now, 0, holder, TAKE)
      local rest = finish - now
      local code = penalty.blocked > penalty.stamp and BLOCKED or BANNED
      reset, retry = math.max(present, rest), retry >= 0 and math.max(retry, rest) or -1
      if before then
        -- Denied independently of the quota: discard its charge.
        after, kept = nil, settled or state
      end
      if not before or set_back or settled then after, lifetime = record_of(kept, alive, penalty, ban, now) end
      return code, 0, reset, retry, 0, after, lifetime
    end
    if after or (allowed == 0 and (ban or set_back)) then
      after, lifetime = record_of(kept, lifetime, penalty, ban, now)
    end
  end
  if allowed == 1 and kind == CHECK then
    -- A check reports what is available, as if it had cost nothing, and stores nothing.
    local _, available, full = step(state, numbers, now, 0, holder, TAKE)
    return 1, available, full, 0, 0, nil, 0
  end
  return allowed, remaining, reset, retry, delay, after, lifetime
end

return decide_record, split_record, join_record, updated_penalty, record_of
