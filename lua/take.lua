-- take: decides any number of requests, one after the other. All charges of a request are taken if every enforcing one
-- is allowed, and none otherwise. A request sees what those before it in this call have charged.
--
-- The most frequent requests are decided without function calls: charges of any number of token buckets, GCRAs and fixed
-- windows that take or show units, without ban, block or granted units. A call of one such charge is decided by take_one.lua,
-- the others here. All further requests are decided by decide.lua, in a function of its own, `others`, as the algorithms are
-- in ALGORITHMS by the letter that ends a stored key; see shared.lua. These files precede this one.
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
-- ARGV[4…] policies: each "<BBB" letter (in upper case if it grants units; with `charge_on` that before the algorithm's),
--          options (1: a ban; 2: shadow; 4: grants) and the number of numbers, then these as "<d"; with a ban the first
--          three are its number of denials, their window and the length of the ban, in µs; with grants the next two are how
--          long a grant lasts, in µs, and its share
-- Returns  for each charge, in order, "<bddd": allowed (1; 0 denied by the quota, -1 by a ban, -2 by a block), remaining,
--          reset_after µs, and delay µs if it is allowed, or else retry_after µs (-1: never); of a grant "<dddd" more:
--          units (0: no grant), when its generation was opened, µs that it lasts, and µs until the first unit of a paced
--          one (-1: not paced); and at the end "<d" now in µs
-- State    one string for each key, in the layout of its algorithm, grants.lua and penalty.lua, with `charge_on` after "<d" the
--          time of its creation; expires when it equals an empty one. Any other debt without ban and grants has 8 bytes
--          more: the deadline in µs until which Redis keeps it. While a key is in use, its state is overwritten in place
--          (SETRANGE), which costs half of SET, and leaves TTL and deadline.
-- A denial writes nothing and leaves the TTL, except for a state that moves because the clock was set back, and for
-- denials that count towards a ban.

local byte, requests = string.byte, ARGV[3]
local decide, decide_one
states = states or call("MGET", unpack(KEYS))
-- By the indices of their keys: the lifetimes in µs of the states to be written, and the deadlines in µs until which Redis
-- keeps the states that can be overwritten in place.
local lifetimes, deadlines = {}, {}
-- Replies as strings; `n` numbers of the next ones are in `result`.
local out, result, n = {}, {}, 0
-- The numbers of the policies that are decided here, by their index. A window has a grid, a debt the other three.
local limits, drains, units, fulls, grids, shadows
-- Whether their states have the time of creation, by their index.
local creations
-- The charges of a request: the indices of their keys, and their next states, false if they take nothing.
local keys, next_states
local at, last = 1, #requests
while at <= last do
  local count, charges, first_key, first_index, first_kind, first_cost, second = unpack_struct("<HHHHBd", requests, at)
  local policy, drain, unit, limit = ARGV[BEFORE_POLICIES + first_index], nil, nil, 0
  local letter, options = byte(policy, 1, 2)
  if options >= GRANTS then letter = letter + UPPER_CASE end
  -- Whether the states of the policy have their time of creation.
  local creates = letter == TOKEN_BUCKET - WITH_CREATION or letter == GCRA - WITH_CREATION
  if creates then letter = letter + WITH_CREATION end
  if (letter == TOKEN_BUCKET or letter == GCRA) and options % 2 == 0 then
    drain, unit, limit = unpack_struct("<ddd", policy, #policy - 23)
  end
  if charges == 1 and first_kind == TAKE and first_cost > 0 and first_cost <= limit then
    -- The arithmetic of debt.lua, inline: calling its functions would cost more than the arithmetic. The fraction of a
    -- number is its remainder by 1, so q % 1 - q rounds -q up.
    local full, price = limit * unit, first_cost * unit
    for i = first_key, first_key + count - 1 do
      local state, stamp, ticks, deadline, created = states[i], now, 0, 0, now
      if state then
        local made, held, own
        if creates then
          if #state == 32 then created, made, held, own = unpack_struct("<dddd", state) end
        elseif #state == 32 then
          made, held, own, deadline = unpack_struct("<dddd", state)
        elseif #state == 24 then
          made, held, own = unpack_struct("<ddd", state)
        end
        local is_plain = own == unit and held >= 0 and held <= full and held % 1 == 0
        if creates and not (created >= 0 and created <= now and created % 1 == 0) then is_plain = false end
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
          if creates then
            states[i], deadline = pack_struct("<dddd", created, stamp, ticks, unit), nil
          else
            states[i] = pack_struct("<ddd", stamp, ticks, unit)
          end
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
        result[n + 1], result[n + 2], result[n + 3], result[n + 4] = decide_one(first_index, i, TAKE, first_cost)
      end
      n = n + 4
    end
    at = second
  else
    if not limits then
      limits, drains, units, fulls, grids, shadows, creations = {}, {}, {}, {}, {}, {}, {}
      keys, next_states = {}, {}
      for i = 1, #ARGV - BEFORE_POLICIES do
        policy = ARGV[BEFORE_POLICIES + i]
        local numbers
        letter, options, numbers = byte(policy, 1, 3)
        if options >= GRANTS then letter = letter + UPPER_CASE end
        if options % 2 == 0 then
          local base = letter + WITH_CREATION
          if base == TOKEN_BUCKET or base == GCRA or base == FIXED_WINDOW then letter, creations[i] = base, true end
          if letter == TOKEN_BUCKET or letter == GCRA then
            drains[i], units[i], limits[i] = unpack_struct("<ddd", policy, #policy - 23)
            fulls[i] = limits[i] * units[i]
          elseif letter == FIXED_WINDOW and numbers == (options < GRANTS and 2 or 4) then
            limits[i], grids[i] = unpack_struct("<dd", policy, #policy - 15)
          end
          shadows[i] = options % 4 > 0
        end
      end
    end
    local behind
    -- There are several equal requests only of one charge.
    for offset = 0, count - 1 do
      -- Whether the request is decided here, and whether its charges are made: if one is denied, the ones before it are decided
      -- again, without being made. Nothing is changed before all are decided.
      local is_plain, passes, c, from = true, true, 1, n
      local key, index, kind, cost
      while c <= charges do
        if c > 1 then
          key, index, kind, cost, behind = unpack_struct("<HHBd", requests, behind)
        else
          key, index, kind, cost, behind = first_key + offset, first_index, first_kind, first_cost, second
        end
        limit = limits[index]
        for other = 1, c - 1 do
          if keys[other] == key then limit = nil end
        end
        if not limit or kind > CHECK or cost > limit or (charges > 1 and shadows[index]) then
          is_plain = false
          break
        end
        local state, stamp, held, grid, allowed, wait = states[key], now, 0, grids[index], 1, 0
        local created = creations[index] and now
        if created and state then
          if #state > 8 then created, state = unpack_struct("<d", state), string.sub(state, 9) end
          if not (created >= 0 and created <= now and created % 1 == 0) then
            is_plain = false
            break
          end
        end
        local next_state, deadline, remaining, reset = false, 0, nil, nil
        if grid then
          -- As in fixed_window.lua.
          local length, own, own_grid, made, start = grid, nil, nil, nil, nil
          if grid < 0 then length = -grid end
          if state then
            if #state == 32 then made, own, own_grid, held = unpack_struct("<dddd", state) end
            is_plain = own_grid == grid and own >= 0 and own <= FOREVER and own % 1 == 0 and made <= now + SET_BACK
            if not (is_plain and made >= 0 and made % 1 == 0 and held >= 0 and held <= FOREVER and held % 1 == 0) then
              is_plain = false
              break
            end
            if made > now then stamp = made end
          end
          start = grid > 0 and stamp - stamp % grid or stamp
          if grid < 0 and own and own <= stamp and stamp - own < length then start = own end
          if start == own then
            -- Redis keeps the state until its window ends.
            deadline = own + length
            if held > limit then held = limit end
          else
            held, deadline = 0, nil
          end
          reset = start + length - now
          if held + cost > limit then
            allowed, wait = 0, reset
          elseif passes and kind == TAKE and cost > 0 then
            held = held + cost
            next_state = pack_struct("<dddd", stamp, start, grid, held)
          end
          if held == 0 then reset = 0 end
          remaining = limit - held
        else
          -- As in debt.lua.
          local full = fulls[index]
          drain, unit = drains[index], units[index]
          if state then
            local own, made
            if #state == 32 then
              made, held, own, deadline = unpack_struct("<dddd", state)
            elseif #state == 24 then
              made, held, own = unpack_struct("<ddd", state)
            end
            is_plain = own == unit and held >= 0 and held <= full and held % 1 == 0
            if not (is_plain and made >= 0 and made <= now + SET_BACK and made % 1 == 0) then
              is_plain = false
              break
            end
            if made > now then stamp = made end
            held = held - (stamp - made) * drain
            if held < 0 then held = 0 end
          end
          local room, price, ahead = full - held, cost * unit, stamp - now
          if price > room then
            wait = (room - price) / drain
            allowed, wait = 0, wait % 1 - wait + ahead
          elseif passes and kind == TAKE and cost > 0 then
            held, room = held + price, room - price
            next_state = pack_struct("<ddd", stamp, held, unit)
          end
          reset = -held / drain
          reset = reset % 1 - reset + ahead
          remaining = (room - room % unit) / unit
        end
        if passes and allowed == 0 then
          passes = false
          if c > 1 then c, n = 0, from end
        end
        if c > 0 then
          if created then
            deadline = nil
            if next_state then next_state = pack_struct("<d", created) .. next_state end
          end
          if not lifetimes[key] then deadlines[key] = deadline end
          keys[c], next_states[c] = key, next_state
          result[n + 1], result[n + 2], result[n + 3], result[n + 4] = allowed, remaining, reset, wait
          n = n + 4
        end
        c = c + 1
      end
      if not is_plain then
        n = from
        if not decide then decide, decide_one = others(now, states, lifetimes, deadlines) end
        if count > 1 then
          result[n + 1], result[n + 2], result[n + 3], result[n + 4] = decide_one(index, key, kind, cost)
          n = n + 4
        else
          if n > 0 then out[#out + 1], n = pack_struct("<" .. string.rep("bddd", n / 4), unpack(result, 1, n)), 0 end
          behind = decide(requests, at + 4, count, charges, out)
        end
      elseif passes then
        for i = 1, charges do
          if next_states[i] then
            local key = keys[i]
            states[key], lifetimes[key] = next_states[i], result[from + 4 * i - 1]
          end
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
      call("SET", KEYS[i], state, "PX", string.format("%d", ttl % 1 - ttl + 1 + ARGV[2]))
    end
  elseif lifetime then
    call("DEL", KEYS[i])
  end
end
result[n + 1] = now
local reply = pack_struct("<" .. string.rep("bddd", n / 4) .. "d", unpack(result, 1, n + 1))
if #out == 0 then return reply end
out[#out + 1] = reply
return table.concat(out)
