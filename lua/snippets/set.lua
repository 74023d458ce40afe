-- set: writes a state.
--
-- In   key, state, lifetime in µs; ARGV[2]: ms to add to the TTL
local ttl = -lifetime / 1000
call("SET", key, state, "PX", string.format("%d", ttl % 1 - ttl + 1 + ARGV[2]))
