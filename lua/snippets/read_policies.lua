-- read_policies: reads all policies of a call.
--
-- Out  the tables of take.lua
limits, drains, units, grids, shadows, creations, keys, next_states = {}, {}, {}, {}, {}, {}, {}, {}
for i = 1, #ARGV - BEFORE_POLICIES do
  local policy, letter, options, creates, drain, unit, limit, _ = ARGV[BEFORE_POLICIES + i]
  --@inline debt_policy
  if limit then
    drains[i], units[i] = drain, unit
  else
    local numbers
    letter, options, numbers = string.byte(policy, 1, 3)
    if options >= GRANTS then letter, numbers = letter + UPPER_CASE, numbers - 2 end
    if letter == FIXED_WINDOW - WITH_CREATION then letter, creates = FIXED_WINDOW, now end
    if letter == FIXED_WINDOW and numbers == 2 and options % 2 == 0 then
      limit, grids[i] = unpack_struct("<dd", policy, #policy - 15)
    end
  end
  limits[i], creations[i], shadows[i] = limit or false, creates or false, options % 4 > 0
end
