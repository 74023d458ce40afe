-- token_bucket: a bucket of `limit` tokens, refilled continuously, full for a new key; see debt.lua.
--
-- In      numbers {N', P', limit}, limit = burst
-- State, TTL and out as in debt.lua; two of its functions for grants.lua follow the step
return debt_step, nil, update_debt, until_drained
