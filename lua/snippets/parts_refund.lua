-- parts_refund: a function of sliding_window.lua that only refunds need. See there for the names.

-- The counters without `cost` of the units in the part that is `age` before the newest, whose number is `last`; nil if
-- that part no longer exists.
local function refund_part(state, first, before, past, newest, age, cost, last, width, stamp)
  if age < 0 or age >= 2^16 then return nil end
  local index, earlier, number, total =
    first_entry(part_entry, state, first, past, before, false, newest, 2^16, age + 1)
  if not number or (newest - number) % 2^16 ~= age then return nil end
  local spent = (total - earlier) % 2^48
  local back = math.min(spent, cost)
  if back == 0 then return nil end
  local from = back == spent and index + 1 or index
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  for i = from, past - 1 do
    number, total = part_entry(state, i)
    kept[#kept + 1] = struct.pack("<I2I6", number, (total - back) % 2^48)
  end
  local entries = table.concat(kept)
  if entries == "" then return "" end
  if from == past then
    -- The timestamp is in the newest part: as late in it as possible.
    number = part_entry(entries, #entries / 8)
    stamp = (last - (newest - number) % 2^16 + 1) * width - 1
  end
  return entries .. struct.pack("<ddd", stamp, before, width)
end
