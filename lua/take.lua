-- take: decides any number of requests, one after the other. All charges of a request are taken if every enforcing one
-- is allowed, and none otherwise. A request sees what those before it in this call have charged.
--
-- The most frequent requests are decided here, without function calls: charges of any number of token buckets, GCRAs and
-- fixed windows that take units, without ban or block. All others are decided by decide.lua, which precedes this file in a
-- function of its own, `others`, as the algorithms do in ALGORITHMS by the letter that ends a stored key; see shared.lua.
--
-- KEYS     stored keys, each once
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to every TTL
-- ARGV[3]  requests: each "<HH" number of equal requests, and number of charges, then for each charge "<HHBd" the index
--          of its key in KEYS, the index of its policy, both from 1, its kind (0 take, 1 check, 3 release, 4 renew, 5
--          refund, 6 late, 7 grant) and its cost; for a concurrency limit 8 bytes more: the holder of the slot; for other
--          refunds "<d" when the units were taken, in µs, and for other late charges "<d" how long ago; for a grant
--          "<ddddd" when the generation of an earlier grant was opened (0: no report), when that grant ends, in µs, its
--          units that were spent and that are returned, and how many new ones are wanted. The number of equal requests
--          exceeds one only with one charge and without extra bytes: the others use the next keys.
-- ARGV[4…] policies: each "<BBB" letter (in upper case if it grants units), options (1: a ban; 2: shadow; 4: grants) and
--          the number of numbers, then these as "<d"; with a ban the first three are its number of denials, their window
--          and the length of the ban, in µs; with grants the next two are how long a grant lasts, in µs, and its share
-- Returns  for each charge, in order, "<bddd": allowed (1; 0 denied by the quota, -1 by a ban, -2 by a block), remaining,
--          reset_after µs, and delay µs if it is allowed, or else retry_after µs (-1: never); of a grant "<dddd" more:
--          units (0: no grant), when its generation was opened, µs that it lasts, and µs until the first unit of a paced
--          one (-1: not paced); and at the end "<d" now in µs
-- State    one string for each key, in the layout of its algorithm, grants.lua and penalty.lua; expires when it equals an
--          empty one. A debt without ban and grants has 8 bytes more: the deadline in µs until which Redis keeps it. While
--          a key is in use, its state is overwritten in place (SETRANGE), which costs half of SET, and leaves TTL and
--          deadline.
-- A denial writes nothing and leaves the TTL, except for a state that moves because the clock was set back, and for
-- denials that count towards a ban.

local unpack_struct, pack_struct, call, byte = struct.unpack, struct.pack, redis.call, string.byte
local TOKEN_BUCKET, GCRA, FIXED_WINDOW = 98, 103, 119

local now, extra, requests = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not now then
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
end
-- By the indices of their keys: the states, the lifetimes in µs of those to be written, and the deadlines in µs until which
-- Redis keeps the states that can be overwritten in place.
local states, lifetimes, deadlines = call("MGET", unpack(KEYS)), {}, {}
local decide, decide_one
-- Replies as strings; `n` numbers of the next ones are in `result`.
local out, result, n = {}, {}, 0
-- The numbers of the policies that are decided here, by their index. A window has a grid, a debt the other three.
local limits, drains, units, fulls, grids, shadows
-- The charges of a request: keys, policies, costs, timestamps, what is spent in ticks or units, starts of windows,
-- deadlines, and whether each is allowed.
local keys, indices, costs, stamps, spent, starts, ends, fits
local at, last = 1, #requests
while at <= last do
  local count, charges, key, index, kind, cost, behind = unpack_struct("<HHHHBd", requests, at)
  local policy, drain, unit, limit = ARGV[BEFORE_POLICIES + index], nil, nil, 0
  local letter, options = byte(policy, 1, 2)
  if (letter == TOKEN_BUCKET or letter == GCRA) and options % 2 == 0 then
    drain, unit, limit = unpack_struct("<ddd", policy, 4)
  end
  if charges == 1 and kind == TAKE and cost > 0 and cost <= limit then
    -- The arithmetic of debt.lua, inline: calling its functions would cost more than the arithmetic. The fraction of a
    -- number is its remainder by 1, so q % 1 - q rounds -q up.
    local full, price = limit * unit, cost * unit
    for i = key, key + count - 1 do
      local state, stamp, ticks, deadline = states[i], now, 0, 0
      if state then
        local made, held, own
        if #state == 32 then
          made, held, own, deadline = unpack_struct("<dddd", state)
        elseif #state == 24 then
          made, held, own = unpack_struct("<ddd", state)
        end
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
        if allowed == 1 then
          if not lifetimes[i] then deadlines[i] = deadline end
          lifetimes[i] = reset
        end
        result[n + 1], result[n + 2], result[n + 3], result[n + 4] = allowed, (room - room % unit) / unit, reset, wait
      else
        if not decide then decide, decide_one = others(now, states, lifetimes, deadlines) end
        result[n + 1], result[n + 2], result[n + 3], result[n + 4] = decide_one(index, i, TAKE, cost)
      end
      n = n + 4
    end
    at = behind
  else
    if not limits then
      limits, drains, units, fulls, grids, shadows = {}, {}, {}, {}, {}, {}
      keys, indices, costs, stamps, spent, starts, ends, fits = {}, {}, {}, {}, {}, {}, {}, {}
      for i = 1, #ARGV - BEFORE_POLICIES do
        policy = ARGV[BEFORE_POLICIES + i]
        local numbers
        letter, options, numbers = byte(policy, 1, 3)
        if options % 2 == 0 then
          if letter == TOKEN_BUCKET or letter == GCRA then
            drains[i], units[i], limits[i] = unpack_struct("<ddd", policy, 4)
            fulls[i] = limits[i] * units[i]
          elseif letter == FIXED_WINDOW and numbers == 2 then
            limits[i], grids[i] = unpack_struct("<dd", policy, 4)
          end
          shadows[i] = options > 0
        end
      end
    end
    -- There are several equal requests only of one charge.
    for offset = 0, count - 1 do
      -- First whether every charge fits: nothing is changed, so that the request can still be left to decide.lua.
      local is_plain, passes, c = true, true, 1
      behind = at + 4
      while is_plain and c <= charges do
        key, index, kind, cost, behind = unpack_struct("<HHBd", requests, behind)
        key, limit = key + offset, limits[index]
        is_plain = limit and kind == TAKE and cost > 0 and cost <= limit and not (shadows[index] and charges > 1)
        for other = 1, c - 1 do is_plain = is_plain and keys[other] ~= key end
        if is_plain then
          local state, stamp, held, grid, start, full, deadline = states[key], now, 0, grids[index], nil, limit, nil
          if grid then
            -- As in fixed_window.lua.
            local own, own_grid, made
            if state then
              if #state == 32 then made, own, own_grid, held = unpack_struct("<dddd", state) end
              is_plain = own_grid == grid and own >= 0 and own <= FOREVER and own % 1 == 0 and made <= now + SET_BACK
              is_plain = is_plain and made >= 0 and made % 1 == 0 and held >= 0 and held <= FOREVER and held % 1 == 0
              if is_plain and made > now then stamp = made end
            end
            if is_plain then
              start = grid > 0 and stamp - stamp % grid or stamp
              if grid < 0 and own and own <= stamp and stamp - own < -grid then start = own end
              if start == own then
                -- Redis keeps the state until its window ends.
                deadline = own + (grid > 0 and grid or -grid)
                if held > limit then held = limit end
              else
                held = 0
              end
            end
          else
            -- As in debt.lua.
            unit, full = units[index], fulls[index]
            cost, deadline = cost * unit, 0
            if state then
              local own, made
              if #state == 32 then
                made, held, own, deadline = unpack_struct("<dddd", state)
              elseif #state == 24 then
                made, held, own = unpack_struct("<ddd", state)
              end
              is_plain = own == unit and held >= 0 and held <= full and held % 1 == 0
              is_plain = is_plain and made >= 0 and made <= now + SET_BACK and made % 1 == 0
              if is_plain then
                if made > now then stamp = made end
                held = held - (stamp - made) * drains[index]
                if held < 0 then held = 0 end
              end
            end
          end
          fits[c] = is_plain and held + cost <= full
          passes = passes and fits[c]
          keys[c], indices[c], costs[c], stamps[c], spent[c], starts[c] = key, index, cost, stamp, held, start
          ends[c] = deadline
          c = c + 1
        end
      end
      if is_plain then
        for i = 1, charges do
          key, index, cost = keys[i], indices[i], costs[i]
          local stamp, held, grid, allowed, wait, reset, remaining = stamps[i], spent[i], grids[index], 1, 0, 0, nil
          if passes then held = held + cost end
          if grid then
            local start, rest = starts[i], nil
            rest = start + (grid > 0 and grid or -grid) - now
            if held > 0 then reset = rest end
            if not fits[i] then allowed, wait = 0, rest end
            remaining = limits[index] - held
            if passes then states[key] = pack_struct("<dddd", stamp, start, grid, held) end
          else
            local room = fulls[index] - held
            drain, unit = drains[index], units[index]
            if not fits[i] then
              wait = (room - cost) / drain
              allowed, wait = 0, wait % 1 - wait + stamp - now
            end
            reset = -held / drain
            reset = reset % 1 - reset + stamp - now
            remaining = (room - room % unit) / unit
            if passes then states[key] = pack_struct("<ddd", stamp, held, unit) end
          end
          if passes then
            if not lifetimes[key] then deadlines[key] = ends[i] end
            lifetimes[key] = reset
          end
          result[n + 1], result[n + 2], result[n + 3], result[n + 4] = allowed, remaining, reset, wait
          n = n + 4
        end
      else
        if not decide then decide, decide_one = others(now, states, lifetimes, deadlines) end
        if count > 1 then
          result[n + 1], result[n + 2], result[n + 3], result[n + 4] = decide_one(index, key, kind, cost)
          n = n + 4
        else
          if n > 0 then out[#out + 1], n = pack_struct("<" .. string.rep("bddd", n / 4), unpack(result, 1, n)), 0 end
          behind = decide(requests, at + 4, count, charges, out)
        end
      end
    end
    at = behind
  end
end
for i = 1, #KEYS do
  local lifetime, deadline, state = lifetimes[i], deadlines[i], states[i]
  if lifetime and lifetime > 0 then
    if deadline and now + lifetime <= deadline then
      -- Costs half of SET. The bytes behind those that are overwritten stay: the deadline of a debt.
      call("SETRANGE", KEYS[i], "0", state)
    else
      if deadline and #state == 24 then
        -- A key that is in use is kept for longer, so that its next states are overwritten in place.
        if deadline > 0 then lifetime = lifetime + IN_USE + (lifetime < MOST_IN_USE and lifetime or MOST_IN_USE) end
        state = state .. pack_struct("<d", now + lifetime)
      end
      local ttl = -lifetime / 1000
      call("SET", KEYS[i], state, "PX", string.format("%d", ttl % 1 - ttl + 1 + extra))
    end
  elseif lifetime then
    call("DEL", KEYS[i])
  end
end
result[n + 1] = now
out[#out + 1] = pack_struct("<" .. string.rep("bddd", n / 4) .. "d", unpack(result, 1, n + 1))
return table.concat(out)
