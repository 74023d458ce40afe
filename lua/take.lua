-- take: decides any number of requests, one after the other. All charges of a request are taken if every enforcing one
-- is allowed, and none otherwise. A request sees what those before it in this call have charged.
--
-- The most frequent request, one charge on a debt without ban or block, is decided here, in one loop without function
-- calls. All others are decided by decide.lua, which precedes this file in a function of its own, `others`, as the
-- algorithms do in ALGORITHMS by the letter that ends a stored key; see shared.lua.
--
-- KEYS     stored keys, each once
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to every TTL
-- ARGV[3]  requests: each "<HH" number of equal requests, and number of charges, then for each charge "<HHBd" the index
--          of its key in KEYS, the index of its policy, both from 1, its kind (0 take, 1 check, 3 release, 4 renew, 5
--          refund, 6 late) and its cost; for a concurrency limit 8 bytes more: the holder of the slot; for other
--          refunds "<d" when the units were taken, in µs, and for other late charges "<d" how long ago. The number of
--          equal requests exceeds one only with one charge and without extra bytes: the others use the next keys.
-- ARGV[4…] policies: each "<BBB" letter, options (1: a ban; 2: shadow) and the number of numbers, then these as "<d";
--          with a ban the first three are its number of denials, their window and the length of the ban, in µs
-- Returns  for each charge, in order, "<bddd": allowed (1; 0 denied by the quota, -1 by a ban, -2 by a block), remaining,
--          reset_after µs, and delay µs if it is allowed, or else retry_after µs (-1: never); and at the end "<d" now
--          in µs
-- State    one string for each key, in the layout of its algorithm and penalty.lua; expires when it equals an empty one
-- A denial writes nothing and leaves the TTL, except for a state that moves because the clock was set back, and for
-- denials that count towards a ban.

local unpack_struct, pack_struct, call = struct.unpack, struct.pack, redis.call
local TOKEN_BUCKET, GCRA = 98, 103

local now, extra, requests = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not now then
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
end
local states, lifetimes = call("MGET", unpack(KEYS)), {}
local decide, decide_one
local out, at = {}, 1
while at <= #requests do
  local count, charges, key, policy_index, kind, cost, behind = unpack_struct("<HHHHBd", requests, at)
  local policy, drain, unit, limit = ARGV[BEFORE_POLICIES + policy_index], nil, nil, 0
  local letter, options = string.byte(policy, 1, 2)
  if (letter == TOKEN_BUCKET or letter == GCRA) and options % 2 == 0 then
    drain, unit, limit = unpack_struct("<ddd", policy, 4)
  end
  if charges == 1 and kind == TAKE and cost > 0 and cost <= limit then
    -- The arithmetic of debt.lua, inline: calling its functions would cost more than the arithmetic. The fraction of a
    -- number is its remainder by 1, so q % 1 - q rounds -q up.
    local full, price = limit * unit, cost * unit
    local result, n = {}, 0
    for i = key, key + count - 1 do
      local state, stamp, ticks = states[i], now, 0
      if state then
        local made, held, own
        if #state == 24 then made, held, own = unpack_struct("<ddd", state) end
        local is_plain = own == unit and held >= 0 and held <= full and held % 1 == 0
        if is_plain and made >= 0 and made <= now + SET_BACK and made % 1 == 0 then
          if made > now then stamp = made end
          ticks = held - (stamp - made) * drain
          if ticks < 0 then ticks = 0 end
        else
          ticks = nil
        end
      end
      if ticks then
        local room, ahead, allowed, wait = full - ticks, stamp - now, 0, 0
        if price <= room then
          allowed, ticks, room = 1, ticks + price, room - price
          states[i] = pack_struct("<ddd", stamp, ticks, unit)
        else
          wait = (room - price) / drain
          wait = wait % 1 - wait + ahead
        end
        local reset = -ticks / drain
        reset = reset % 1 - reset + ahead
        if allowed == 1 then lifetimes[i] = reset end
        result[n + 1], result[n + 2], result[n + 3], result[n + 4] = allowed, (room - room % unit) / unit, reset, wait
      else
        if not decide then decide, decide_one = others(now, states, lifetimes) end
        result[n + 1], result[n + 2], result[n + 3], result[n + 4] = decide_one(policy_index, i, TAKE, cost)
      end
      n = n + 4
    end
    out[#out + 1] = pack_struct("<" .. string.rep("bddd", count), unpack(result))
    at = behind
  else
    if not decide then decide, decide_one = others(now, states, lifetimes) end
    at = decide(requests, at + 4, count, charges, out)
  end
end
for i = 1, #KEYS do
  local lifetime = lifetimes[i]
  if lifetime and lifetime > 0 then
    local ttl = -lifetime / 1000
    call("SET", KEYS[i], states[i], "PX", string.format("%d", ttl % 1 - ttl + 1 + extra))
  elseif lifetime then
    call("DEL", KEYS[i])
  end
end
out[#out + 1] = pack_struct("<d", now)
return table.concat(out)
