-- clock: the time of the call.
--
-- In   ARGV[1]: now in µs, or "" for this server's own clock
-- Out  now in µs; call: the function that calls a command
local call, now = redis.call, ARGV[1]
if now == "" then
  local time = call("TIME")
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end
