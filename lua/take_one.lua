-- take_one: decides a call of one charge of a token bucket or a GCRA without ban. take.lua, which follows, decides all others.
--
-- Most calls of a proxy with few requests are such. This needs no functions and hardly a table, which cost more than its
-- arithmetic, that of debt.lua.

local unpack_struct, pack_struct, call, now = struct.unpack, struct.pack, redis.call, ARGV[1]
if now == "" then
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
-- By the indices of their keys.
local states

if #ARGV[3] == ONE_CHARGE and #KEYS == 1 then
  local key, policy = KEYS[1], ARGV[BEFORE_POLICIES + 1]
  local kind, cost = unpack_struct("<Bd", ARGV[3], 9)
  local letter, options, _, drain, unit, limit
  -- When the state was created, with `charge_on`.
  local created
  if #policy >= POLICY + 24 then
    letter, options, _, drain, unit, limit = unpack_struct("<BBBddd", policy)
    -- The numbers of the algorithm are the last ones.
    if options >= GRANTS then
      letter = letter + UPPER_CASE
      drain, unit, limit = unpack_struct("<ddd", policy, #policy - 23)
    end
    if letter == TOKEN_BUCKET - WITH_CREATION or letter == GCRA - WITH_CREATION then
      letter, created = letter + WITH_CREATION, now
    end
  end
  states = call("MGET", key)
  if (letter == TOKEN_BUCKET or letter == GCRA) and options % 2 == 0 and cost <= limit and kind <= CHECK then
    local state, stamp, ticks, deadline = states[1], now, 0, 0
    local full, price = limit * unit, cost * unit
    if state then
      local made, held, own
      if created then
        if #state == 32 then created, made, held, own = unpack_struct("<dddd", state) end
      elseif #state == 32 then
        made, held, own, deadline = unpack_struct("<dddd", state)
      elseif #state == 24 then
        made, held, own = unpack_struct("<ddd", state)
      end
      local is_plain = own == unit and held >= 0 and held <= full and held % 1 == 0
      if created and not (created >= 0 and created <= now and created % 1 == 0) then is_plain = false end
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
      local takes = false
      if price <= room then
        allowed = 1
        if kind == TAKE then ticks, room, takes = ticks + price, room - price, price > 0 end
      else
        wait = (room - price) / drain
        wait = wait % 1 - wait + ahead
      end
      local reset = -ticks / drain
      reset = reset % 1 - reset + ahead
      if takes then
        if created then
          local ttl = -reset / 1000
          ttl = string.format("%d", ttl % 1 - ttl + 1 + ARGV[2])
          call("SET", key, pack_struct("<dddd", created, stamp, ticks, unit), "PX", ttl)
        elseif now + reset <= deadline then
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
    end
  end
end
