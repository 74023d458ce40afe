-- token_bucket: a bucket of `limit` tokens, refilled smoothly, that a new key finds full; see debt.lua.
--
-- In      numbers {N', P', limit}, limit = burst
-- State, TTL and out as in debt.lua
return (debt())
