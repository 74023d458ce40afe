-- take_lone: decides a call of one charge of any algorithm, with no functions but those of its algorithm and, after denials,
-- penalty.lua. take.lua, which follows, decides calls of limits with reservations, and those that ask for a grant or find one.

if #KEYS == 1 and #ARGV[3] <= ONE_CHARGE + EXTRA_BYTES then
  local key, text = KEYS[1], ARGV[BEFORE_POLICIES + 1]
  local kind, cost = unpack_struct("<Bd", ARGV[3], 9)
  local letter = string.lower(string.sub(text, 1, 1))
  states = states or call("MGET", key)
  local record = states[1]
  local is_plain = not record or #record % 8 == 0
  local step = (is_plain or (#record % 8 == 1 and string.sub(record, -1) == "h")) and functions_of(letter)
  if step then
    local options, ban, span, share, most, numbers
    --@inline policy
    local holder
    if letter == "c" then
      holder = string.sub(ARGV[3], -8)
    elseif kind >= REFUND and kind ~= EXTRA then
      holder = unpack_struct("<d", ARGV[3], ONE_CHARGE + 1)
      if kind == LATE then holder = now - holder end
    end
    --@inline plain_record
    local allowed, remaining, reset, retry, delay, after, lifetime
    if is_plain then
      -- A ban matters only to a denial.
      --@inline plain_charge
    end
    if not is_plain or (ban and allowed == 0) then
      local policy = { letter = letter, step = step, numbers = numbers, ban = ban }
      allowed, remaining, reset, retry, delay, after, lifetime =
        functions_of("penalty")(policy, record, now, cost, kind, holder)
    end
    if after and lifetime > 0 then
      local state = after
      --@inline set
    elseif after then
      call("DEL", key)
    end
    return pack_struct("<bdddd", allowed, remaining, reset, allowed == 1 and delay or retry, now)
  end
end
