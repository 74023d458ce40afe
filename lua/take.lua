-- take: decides any number of requests, one after the other. All charges of a request are taken if every enforcing one
-- is allowed, and none otherwise. A request sees what those before it in this call have charged.
--
-- The most frequent requests are decided without function calls: charges of any number of token buckets, GCRAs and fixed
-- windows that take or show units, without ban, block, granted units and settled costs. A call of one such charge is decided by take_one.lua,
-- the others here. All further requests are decided by decide.lua, in a function of its own, `others`, as the algorithms are
-- in ALGORITHMS by the letter that ends a stored key; see shared.lua. These files precede this one.
--
-- KEYS     stored keys, each once
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to every TTL
-- ARGV[3]  requests: each "<HH" number of equal requests, and number of charges, then for each charge "<HHBd" the index
--          of its key in KEYS, the index of its policy, both from 1, its kind (0 take, 1 check, 3 release, 4 renew, 5
--          refund, 6 late, 7 grant, 8 extra) and its cost; for a concurrency limit 8 bytes more: the holder of the slot; for other
--          refunds "<d" when the units were taken, in µs, and for other late charges "<d" how long ago; for a grant
--          "<ddddd" when the generation of an earlier grant was opened (0: no report), when that grant ends, in µs, its
--          units that were spent and that are returned, and how many new ones are wanted. The number of equal requests
--          exceeds one only with one charge and without extra bytes: the others use the next keys.
-- ARGV[4…] policies: each "<BBB" letter (in upper case if it grants units and settles no costs; with reservations that before
--          the algorithm's), options (1: a ban; 2: shadow; 4: grants; 8: settles costs) and the number of numbers, then these
--          as "<d"; with a ban the first three are its number of denials, their window and the length of the ban, in µs; with
--          grants the next two are how long a grant lasts, in µs, and its share; with settled costs the next one is the most
--          units that a key may owe
-- Returns  for each charge, in order, "<bddd": allowed (1; 0 denied by the quota, -1 by a ban, -2 by a block), remaining,
--          reset_after µs, and delay µs if it is allowed, or else retry_after µs (-1: never); of a grant "<dddd" more:
--          units (0: no grant), when its generation was opened, µs that it lasts, and µs until the first unit of a paced
--          one (-1: not paced); and at the end "<d" now in µs
-- State    one string for each key, in the layout of its algorithm, grants.lua and penalty.lua, with reservations after "<d" the
--          time of its creation; expires when it equals an empty one. Any other debt without ban and grants has 8 bytes
--          more: the deadline in µs until which Redis keeps it. While a key is in use, its state is overwritten in place
--          (SETRANGE), which costs half of SET, and leaves TTL and deadline.
-- A denial writes nothing and leaves the TTL, except for a state that moves because the clock was set back, and for
-- denials that count towards a ban.

local requests = ARGV[3]
local decide, decide_one
states = states or call("MGET", unpack(KEYS))
-- By the indices of their keys: the lifetimes in µs of the states to be written, and the deadlines in µs until which Redis
-- keeps the states that can be overwritten in place.
local lifetimes, deadlines = {}, {}
-- Replies as strings; `n` numbers of the next ones are in `result`.
local out, result, n = {}, {}, 0
-- The numbers of the policies that are decided here, by their index. A window has a grid, a debt the other two. `creations` has
-- now if their states have the time of creation, and else false.
local limits, drains, units, grids, shadows, creations
-- The charges of a request: the indices of their keys, and their next states, false if they take nothing.
local keys, next_states
local at, last = 1, #requests
while at <= last do
  local count, charges, first_key, first_index, first_kind, first_cost, second = unpack_struct("<HHHHBd", requests, at)
  local policy, letter, options, creates, drain, unit, limit, _ = ARGV[BEFORE_POLICIES + first_index]
  --@inline debt_policy
  if charges == 1 and first_kind == TAKE and limit and first_cost > 0 and first_cost <= limit then
    --@inline take_debts
    at = second
  else
    if not limits then
      --@inline read_policies
    end
    local behind
    -- There are several equal requests only of one charge.
    for offset = 0, count - 1 do
      local key, index, kind, cost
      -- Whether the request is decided here, and whether its charges are made. Nothing is changed before all are decided.
      local is_plain, passes, from, is_decided = true, true, n, nil
      repeat
        n, is_decided = from, true
        for c = 1, charges do
          if c > 1 then
            key, index, kind, cost, behind = unpack_struct("<HHBd", requests, behind)
            limit = limits[index]
            for other = 1, c - 1 do limit = keys[other] ~= key and limit end
          else
            key, index, kind, cost, behind = first_key + offset, first_index, first_kind, first_cost, second
            limit = limits[index]
          end
          local allowed, remaining, reset, wait, next_state, deadline
          if limit and kind <= CHECK and cost <= limit and (charges == 1 or not shadows[index]) then
            --@inline decide_charge
          end
          if not allowed then
            is_plain = false
            break
          end
          if passes and allowed == 0 then
            passes, is_decided = false, c == 1
            -- The charges before it are decided again, without being made.
            if c > 1 then break end
          end
          if not lifetimes[key] then deadlines[key] = deadline end
          keys[c], next_states[c] = key, next_state
          result[n + 1], result[n + 2], result[n + 3], result[n + 4] = allowed, remaining, reset, wait
          n = n + 4
        end
      until is_decided
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
          key = keys[i]
          if next_states[i] then states[key], lifetimes[key] = next_states[i], result[from + 4 * i - 1] end
        end
      end
    end
    at = behind
  end
end
for i = 1, #KEYS do
  local key, lifetime, deadline, state = KEYS[i], lifetimes[i], deadlines[i], states[i]
  if lifetime and lifetime > 0 then
    if deadline and now + lifetime <= deadline then
      -- Costs half of SET. The bytes behind those that are overwritten stay: the deadline of a debt.
      call("SETRANGE", key, "0", state)
    else
      if deadline and #state == 24 then
        --@inline in_use
        state = state .. pack_struct("<d", now + lifetime)
      end
      --@inline set
    end
  elseif lifetime then
    call("DEL", key)
  end
end
result[n + 1] = now
local reply = pack_struct("<" .. string.rep("bddd", n / 4) .. "d", unpack(result, 1, n + 1))
if #out == 0 then return reply end
out[#out + 1] = reply
return table.concat(out)
