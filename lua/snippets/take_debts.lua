-- take_debts: decides equal requests of one charge that takes units of a debt.
--
-- In   drain, unit, limit, creates: of the policy; count, first_key, first_index, first_cost; the tables of take.lua
-- Out  these tables, n
local full, price = limit * unit, first_cost * unit
local charged = price
for i = first_key, first_key + count - 1 do
  local state, created, stamp, ticks, deadline = states[i], creates
  local allowed, remaining, reset, wait
  --@inline debt_state
  if ticks then
    --@inline debt_decide
    if allowed == 1 then
      if created then
        states[i], deadline = pack_struct("<dddd", created, stamp, ticks, unit), nil
      else
        states[i] = pack_struct("<ddd", stamp, ticks, unit)
      end
      if not lifetimes[i] then deadlines[i] = deadline end
      lifetimes[i] = reset
    end
  else
    if not decide then decide, decide_one = others(now, states, lifetimes, deadlines) end
    allowed, remaining, reset, wait = decide_one(first_index, i, TAKE, first_cost)
  end
  result[n + 1], result[n + 2], result[n + 3], result[n + 4] = allowed, remaining, reset, wait
  n = n + 4
end
