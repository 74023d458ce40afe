-- take_one: decides a call of one charge of a bucket, a fixed window or a queue without ban. take_lone.lua and take.lua, which
-- follow, decide all others.
--
-- Most calls of a proxy with few requests are such. This needs no functions and hardly a table, which cost more than its
-- arithmetic; script.rs has the figures.

--@inline clock
local unpack_struct, pack_struct = struct.unpack, struct.pack
-- By the indices of their keys.
local states

if #ARGV[3] == ONE_CHARGE and #KEYS == 1 then
  local key, policy = KEYS[1], ARGV[BEFORE_POLICIES + 1]
  local kind, cost = unpack_struct("<Bd", ARGV[3], 9)
  local letter, options, creates, drain, unit, limit, _
  --@inline debt_policy
  states = call("MGET", key)
  if limit and cost <= limit and kind <= CHECK then
    local state, created, stamp, ticks, deadline = states[1], creates
    local full, price = limit * unit, cost * unit
    --@inline debt_state
    if ticks then
      local charged, allowed, remaining, reset, wait = kind == TAKE and price or 0
      --@inline debt_decide
      if allowed == 1 and charged > 0 then
        if not created and now + reset <= deadline then
          call("SETRANGE", key, "0", pack_struct("<ddd", stamp, ticks, unit))
        else
          local lifetime = reset
          if created then
            state = pack_struct("<dddd", created, stamp, ticks, unit)
          else
            --@inline in_use
            state = pack_struct("<dddd", stamp, ticks, unit, now + lifetime)
          end
          --@inline set
        end
      end
      return pack_struct("<bdddd", allowed, remaining, reset, wait, now)
    end
  elseif kind <= CHECK then
    local text, record, count = policy, states[1], nil
    letter, options, count = string.byte(text, 1, 3)
    -- Without grants, the states of a limit that grants units are those of any other.
    if letter < LOWER_CASE then letter, count = letter + UPPER_CASE, count - 2 end
    if options % 2 == 1 or options >= SETTLES then letter = nil end
    if letter == INTERVAL then
      --@inline lone_interval
    elseif letter == LEAKY_BUCKET then
      --@inline lone_leaky
    elseif letter == FIXED_WINDOW and count == 2 then
      --@inline lone_window
    end
  end
end
