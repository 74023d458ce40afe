-- interval_ticks: adds the tokens of the ticks since a state was made.
--
-- In   at: the time; tick: the last tick of the state; missing: its missing tokens; units, period
-- Out  tick: the last one at or before `at`; missing
local ticks = at - tick
ticks = (ticks - ticks % period) / period
if ticks * units >= missing then
  tick, missing = at, 0
else
  tick, missing = tick + ticks * period, missing - ticks * units
end
