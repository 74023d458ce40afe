-- plain_charge: decides a charge on a record without a penalty, as if there were no ban.
--
-- In   step, numbers, letter: of the policy; record; kind, cost, holder: of the charge; now
-- Out  what penalty.lua returns
if kind > CHECK then
  local kind, cost, holder = kind, cost, holder
  --@inline kind
  allowed, remaining, reset, retry, delay, after, lifetime = step(record, numbers, now, cost, holder, kind)
else
  allowed, remaining, reset, retry, delay, after, lifetime = step(record, numbers, now, cost, holder, TAKE)
  if kind == CHECK and allowed == 1 then
    -- A check reports what is available, as if it had cost nothing, and stores nothing.
    retry, delay, after = 0, 0, nil
    if cost > 0 then allowed, remaining, reset = step(record, numbers, now, 0, holder, TAKE) end
  end
end
