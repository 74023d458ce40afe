-- take_one: decides a call of one request with one charge, of a token bucket or a GCRA without ban.
--
-- Most calls of a proxy with few requests are such. This script needs no functions and hardly a table, which cost more than
-- its arithmetic, that of debt.lua.
--
-- KEYS, ARGV, state  as in take.lua
-- Returns            as in take.lua; or "" if take.lua must decide: the state has other numbers, a ban or a block, or the
--                    clock was set back. Then nothing has been changed.

local unpack_struct, pack_struct, call, key = struct.unpack, struct.pack, redis.call, KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
end
local _, _, _, _, kind, cost = unpack_struct("<HHHHBd", ARGV[3])
local drain, unit, limit = unpack_struct("<ddd", ARGV[4], 4)
if kind ~= TAKE or cost <= 0 or cost > limit then return "" end
local state, stamp, ticks, deadline = call("MGET", key)[1], now, 0, 0
local full, price = limit * unit, cost * unit
if state then
  local made, held, own
  if #state == 32 then
    made, held, own, deadline = unpack_struct("<dddd", state)
  elseif #state == 24 then
    made, held, own = unpack_struct("<ddd", state)
  end
  local is_plain = own == unit and held >= 0 and held <= full and held % 1 == 0
  if not (is_plain and made >= 0 and made <= now + SET_BACK and made % 1 == 0) then return "" end
  if made > now then stamp = made end
  ticks = held - (stamp - made) * drain
  if ticks < 0 then ticks = 0 end
end
local room, ahead, allowed, wait = full - ticks, stamp - now, 0, 0
if price <= room then
  allowed, ticks, room = 1, ticks + price, room - price
else
  wait = (room - price) / drain
  wait = wait % 1 - wait + ahead
end
local reset = -ticks / drain
reset = reset % 1 - reset + ahead
if allowed == 1 then
  if now + reset <= deadline then
    call("SETRANGE", key, "0", pack_struct("<ddd", stamp, ticks, unit))
  else
    local lifetime = reset
    if deadline > 0 then lifetime = reset + IN_USE + (reset < MOST_IN_USE and reset or MOST_IN_USE) end
    local ttl = -lifetime / 1000
    ttl = string.format("%d", ttl % 1 - ttl + 1 + ARGV[2])
    call("SET", key, pack_struct("<dddd", stamp, ticks, unit, now + lifetime), "PX", ttl)
  end
end
return pack_struct("<bdddd", allowed, (room - room % unit) / unit, reset, wait, now)
