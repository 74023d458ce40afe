-- fixed_window: a count for each window; twin of crates/limit/src/limit/window.rs.
--
-- In      numbers {N, grid}; grid is the period for windows aligned to the clock, and the negated period for windows
--         aligned to the first request. Calendar windows are {N, grid, e0, e1, e2, e3}: the starts of the window
--         before the caller's, of the caller's own, and of the next two.
-- State   "<dddd" (32 bytes): timestamp in µs, start of the window, its grid, and its units.
-- TTL     until the window ends

-- The window that contains `stamp`; `own` is the start of the window of the state, or nil.
local function window_at(numbers, stamp, own)
  local grid, start, finish = numbers[2], nil, nil
  if numbers[3] then
    for i = 3, 5 do
      if stamp < numbers[i + 1] then return numbers[i], numbers[i + 1] end
    end
    -- The caller's clock is more than a window behind: continue with windows like its last.
    local length = numbers[6] - numbers[5]
    start = numbers[6] + div_floor(stamp - numbers[6], length) * length
    return start, start + length
  end
  --@inline window_start
  return start, finish
end

-- The start of the window that holds what was taken at `taken`, if it is still open, or nil; `own` is the start of the
-- window of the state, and `start` that of the window at `at`, with `units` in it.
local function start_of_late(grid, follows_calendar, own, start, units, at, taken)
  if follows_calendar or grid > 0 then return start <= taken and start or nil end
  if at - taken >= -grid then return nil end
  if units > 0 then return start end
  -- No window is open: the one of the charge has ended, or would have started with it.
  if own and own <= taken and taken - own < -grid then return nil end
  return taken
end

-- The window at `now`: the time, its units, whether the clock was set back, its start and its end, and the start of the
-- window of the state, or nil.
local function update_window(state, numbers, now)
  -- More than the limit with settled costs.
  local limit, grid = numbers.most or numbers[1], numbers[2]
  local stamp, own, own_grid, held
  if state and #state == 32 then stamp, own, own_grid, held = struct.unpack("<dddd", state) end
  if own_grid ~= grid then return now, 0, false, window_at(numbers, now, nil) end
  if not (is_whole(stamp) and is_whole(own) and is_whole(held)) then
    local start, finish = window_at(numbers, now, nil)
    return now, 0, false, start, finish, own
  end
  if stamp > now + SET_BACK then
    -- Spent units are carried over: into the present window, or with a window of their own.
    local start, finish = window_at(numbers, now, math.max(0, own - (stamp - now)))
    return now, math.min(held, limit), true, start, finish, own
  end
  stamp = math.max(now, stamp)
  local start, finish = window_at(numbers, stamp, own)
  --@inline window_units
  return stamp, held, false, start, finish, own
end

local function window_step(state, numbers, now, cost, taken, kind)
  local limit, grid = numbers[1], numbers[2]
  local stamp, held, set_back, start, finish, own = update_window(state, numbers, now)
  local before = held
  if kind == REFUND then
    -- A window that started later does not contain it.
    if start <= taken then held = math.max(0, held - cost) end
    cost = 0
  elseif kind == LATE then
    local opened = start_of_late(grid, numbers[3], own, start, held, stamp, math.min(taken, stamp))
    if opened then held = math.min(numbers.most or limit, held + cost) end
    if held > before and opened ~= start then start, finish = opened, opened - grid end
    cost = 0
  end
  -- Nothing fits into a window that exceeds the limit, except nothing.
  if cost == 0 and held > limit then limit = held end
  local charged, allowed, remaining, reset, wait = cost
  --@inline window_decide
  if remaining < 0 then remaining = 0 end
  if cost > limit then wait = -1 end
  local next_state
  if held ~= before or (allowed == 0 and set_back) then
    next_state = kind == REFUND and held == 0 and "" or struct.pack("<dddd", stamp, start, grid, held)
  end
  return allowed, remaining, reset, wait, 0, next_state, reset
end

return window_step, update_window
