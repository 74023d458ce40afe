-- parts_late: a function of sliding_window.lua that only late charges need. See there for the names.

-- The counters with `units` more in the part `late`, which contains `taken`; those from `first` on count.
local function late_part(state, first, before, past, newest, total, units, late, last, width, stamp, taken)
  if first == past then return struct.pack("<I2I6ddd", late % 2^16, units, taken, 0, width) end
  if late >= last then
    local kept = string.sub(state, first * 8 - 7, late == last and -33 or -25)
    local number = (newest + late - last) % 2^16
    return kept .. struct.pack("<I2I6ddd", number, (total + units) % 2^48, math.max(stamp, taken), before, width)
  end
  local age = last - late
  local index, earlier, number = first_entry(part_entry, state, first, past, before, false, newest, 2^16, age + 1)
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  if not number or (newest - number) % 2^16 ~= age then
    kept[2] = struct.pack("<I2I6", (newest - age) % 2^16, (earlier + units) % 2^48)
  end
  for i = index, past - 1 do
    number, total = part_entry(state, i)
    kept[#kept + 1] = struct.pack("<I2I6", number, (total + units) % 2^48)
  end
  return table.concat(kept) .. struct.pack("<ddd", stamp, before, width)
end
