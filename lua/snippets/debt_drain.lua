-- debt_drain: subtracts the units that have drained since the state was made, whose time may be ahead of this clock.
--
-- In   made: the time of the state; ticks: its debt; stamp: now; drain
-- Out  stamp: the later of both; ticks: the debt at `stamp`
if made > stamp then stamp = made end
ticks = ticks - (stamp - made) * drain
if ticks < 0 then ticks = 0 end
