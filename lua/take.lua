-- take: decides any number of requests, one after the other. Of each, all charges are taken if every one that
-- enforces is allowed, and none otherwise. Requests see what those before them in this call have charged.
--
-- What nearly all requests are, one charge on a debt that nothing holds back, is decided here, in one loop that makes
-- nothing that it does not need. All others go by decide.lua, which stands in front of this in a function of its
-- own, `others`, as the algorithms do in ALGORITHMS by the letter that ends a stored key; see shared.lua.
--
-- KEYS     stored keys, each once
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to every TTL
-- ARGV[3]  requests: each "<HH" for how many, and how many charges, then of each charge "<HHBd" the place of its
--          key in KEYS, the place of its policy, both from 1, its manner (0 take, 1 look, 3 give back, 4
--          renew, 5 refund, 6 late) and its cost; of a concurrency limit 8 bytes more: who holds the slot; of another's
--          refund "<d" when the units were taken, in µs, and of its late charge "<d" how long ago. It stands for more
--          than one request only with one charge and without more bytes: the others are the same on the keys behind.
-- ARGV[4…] policies: each "<BBB" letter, options (1: a ban; 2: shadow) and how many numbers, then so many "<d"; of
--          a ban the first three are after how many denials, within which time and for how long, in µs
-- Returns  of each charge, in order, "<bddd": allowed (1; 0 the quota, -1 a ban, -2 a block refuses), remaining,
--          reset_after µs, and delay µs if it is allowed, or else retry_after µs (-1: never); and at the end "<d" now
--          in µs
-- State    one string a key, laid out as its algorithm and hold.lua say; gone at its TTL, when it equals no state
-- A denial writes nothing and leaves the TTL, but for a state that moves because the clock was set back, and for
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
  local count, charges, key, place, manner, cost, behind = unpack_struct("<HHHHBd", requests, at)
  local policy, drain, unit, limit = ARGV[BEFORE_POLICIES + place], nil, nil, 0
  local letter, options = string.byte(policy, 1, 2)
  if (letter == TOKEN_BUCKET or letter == GCRA) and options % 2 == 0 then
    drain, unit, limit = unpack_struct("<ddd", policy, 4)
  end
  if charges == 1 and manner == TAKE and cost > 0 and cost <= limit then
    -- As in debt.lua, whose functions would take longer than what they do. What a number is beyond a whole one is its
    -- remainder by 1, so q % 1 - q rounds -q up.
    local full, price = limit * unit, cost * unit
    local said, n = {}, 0
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
        said[n + 1], said[n + 2], said[n + 3], said[n + 4] = allowed, (room - room % unit) / unit, reset, wait
      else
        if not decide then decide, decide_one = others(now, states, lifetimes) end
        said[n + 1], said[n + 2], said[n + 3], said[n + 4] = decide_one(place, i, TAKE, cost)
      end
      n = n + 4
    end
    out[#out + 1] = pack_struct("<" .. string.rep("bddd", count), unpack(said))
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
