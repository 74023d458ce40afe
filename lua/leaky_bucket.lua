-- leaky_bucket: a queue that drains one unit each T; early requests are delayed; twin of Bucket::queue in
-- crates/limit/src/limit/bucket.rs. The schedule is the state, so any number of proxies share one queue; see debt.lua.
--
-- In      numbers {N', P', limit}, limit = queue + 1
-- State and TTL as in debt.lua

return function(state, numbers, now, cost, taken, kind)
  local allowed, remaining, reset, retry, delay, next_state, lifetime =
    debt_step(state, numbers, now, cost, taken, kind)
  if allowed == 1 and cost > 0 and kind ~= REFUND and kind ~= LATE then
    local drain, unit, limit = numbers[1], numbers[2], numbers[3]
    local at, ticks = update_debt(state, drain, unit, limit * unit, now)
    delay = until_drained(ticks, drain, at, now)
  end
  return allowed, remaining, reset, retry, delay, next_state, lifetime
end
