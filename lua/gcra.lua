-- gcra: even spacing T with a tolerance; its theoretical arrival time is timestamp + debt/N'; see debt.lua.
--
-- In      numbers {N', P', limit}, limit = burst + 1
-- State, TTL and out as in debt.lua
return debt_step
