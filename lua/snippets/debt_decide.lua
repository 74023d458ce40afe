-- debt_decide: decides a charge on a debt.
--
-- In   stamp, ticks: the debt; now; drain, unit, full; price: what has to fit, in ticks; charged: what is taken then
-- Out  allowed (1 or 0), ticks, remaining; reset and wait in µs: until the debt has drained, and until the price fits
local room, ahead = full - ticks, stamp - now
if price > room then
  allowed = 0
  wait = (room - price) / drain
  wait = wait % 1 - wait + ahead
else
  allowed = 1
  wait = 0
  ticks = ticks + charged
  room = room - charged
end
--@inline debt_reset
remaining = (room - room % unit) / unit
