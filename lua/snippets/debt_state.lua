-- debt_state: the debt of a key at the present time, if its state has the unit of its policy and a plain time.
--
-- In   state; created: now if the states of the policy have the time of their creation; drain, unit, full; now
-- Out  stamp: now, or the time of the state if that is slightly ahead; ticks: the debt at `stamp`, or nil if the functions of
--      debt.lua have to decide; deadline: until which Redis keeps the state in µs, or 0; created: when the state was created
stamp = now
ticks = 0
deadline = 0
if state then
  local made, own
  if created then
    if #state == 32 then created, made, ticks, own = unpack_struct("<dddd", state) end
  elseif #state == 32 then
    made, ticks, own, deadline = unpack_struct("<dddd", state)
  elseif #state == 24 then
    made, ticks, own = unpack_struct("<ddd", state)
  end
  if own == unit and ticks >= 0 and ticks <= full and ticks % 1 == 0
    and made >= 0 and made <= now + SET_BACK and made % 1 == 0
    and (not created or (created >= 0 and created <= now and created % 1 == 0)) then
    --@inline debt_drain
  else
    ticks = nil
  end
end
