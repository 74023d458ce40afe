-- window_decide: decides a charge on a window.
--
-- In   held, limit, finish, now; cost: what has to fit; charged: what is taken then
-- Out  allowed (1 or 0), held, remaining; reset and wait in µs: until the window ends
reset = finish - now
if cost > limit - held then
  allowed = 0
  wait = reset
else
  allowed = 1
  wait = 0
  held = held + charged
end
if held == 0 then reset = 0 end
remaining = limit - held
