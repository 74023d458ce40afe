-- interval_decide: decides a charge on an interval bucket. See debt_reset for rounding up.
--
-- In   at, tick, missing: the bucket; now; units, period, limit; cost: what has to fit; charged: what is taken then
-- Out  allowed (1 or 0), tick, missing, remaining; reset and wait in µs: until the bucket is full, and until the cost fits
remaining = limit - missing
wait = 0
if cost > 0 and cost > remaining then
  allowed = 0
  wait = (remaining - cost) / units
  wait = (wait % 1 - wait) * period - (at - tick) + (at - now)
else
  allowed = 1
  -- A charge on a full bucket starts its grid.
  if missing == 0 then tick = at end
  missing = missing + charged
  remaining = remaining - charged
end
reset = 0
if missing > 0 then
  reset = -missing / units
  reset = (reset % 1 - reset) * period - (at - tick) + (at - now)
end
