-- fixed_window: a count for each window; twin of crates/limit/src/limit/window.rs.
--
-- In      numbers {N, grid}; grid is the period for windows aligned to the clock, and the negated period for windows
--         aligned to the first request. Calendar windows are {N, grid, e0, e1, e2, e3}: the starts of the window
--         before the caller's, of the caller's own, and of the next two.
-- State   "<dddd" (32 bytes): timestamp in µs, start of the window, its grid, and its units.
-- TTL     until the window ends

-- The window that contains `at`; `own` is the start of the window of the state, or nil.
local function window_at(numbers, at, own)
  local grid = numbers[2]
  if numbers[3] then
    for i = 3, 5 do
      if at < numbers[i + 1] then return numbers[i], numbers[i + 1] end
    end
    -- The caller's clock is more than a window behind: continue with windows like its last.
    local length = numbers[6] - numbers[5]
    local start = numbers[6] + div_floor(at - numbers[6], length) * length
    return start, start + length
  end
  if grid > 0 then
    local start = at - math.fmod(at, grid)
    return start, start + grid
  end
  local start = at
  if own and own <= at and at - own < -grid then start = own end
  return start, start - grid
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
  local limit, grid = numbers[1], numbers[2]
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
  local at = math.max(now, stamp)
  local start, finish = window_at(numbers, at, own)
  return at, start == own and math.min(held, limit) or 0, false, start, finish, own
end

local function window_step(state, numbers, now, cost, taken, kind)
  local limit, grid = numbers[1], numbers[2]
  local at, units, set_back, start, finish, own = update_window(state, numbers, now)
  local rest = finish - now
  if kind == REFUND then
    -- A window that started later does not contain it.
    local back = start <= taken and math.min(units, cost) or 0
    units = units - back
    local reset = units > 0 and rest or 0
    local next_state = back > 0 and (units > 0 and struct.pack("<dddd", at, start, grid, units) or "") or nil
    return 1, limit - units, reset, 0, 0, next_state, reset
  end
  if kind == LATE then
    local opened = start_of_late(grid, numbers[3], own, start, units, at, math.min(taken, at))
    local after = math.min(limit, units + cost)
    local reset = units > 0 and rest or 0
    if not opened or after == units then return 1, limit - units, reset, 0, 0, nil, reset end
    if opened ~= start then rest = opened - grid - now end
    return 1, limit - after, rest, 0, 0, struct.pack("<dddd", at, opened, grid, after), rest
  end
  if cost > limit - units then
    local moved = set_back and struct.pack("<dddd", at, start, grid, units) or nil
    local reset = units > 0 and rest or 0
    return 0, limit - units, reset, cost <= limit and rest or -1, 0, moved, reset
  end
  units = units + cost
  local next_state = cost > 0 and struct.pack("<dddd", at, start, grid, units) or nil
  local reset = units > 0 and rest or 0
  return 1, limit - units, reset, 0, 0, next_state, reset
end

return window_step, update_window
