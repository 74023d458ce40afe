-- log_late: functions of sliding_log.lua that only late charges need. See there for the names.

local function log_word(time, total)
  local low = total % 8
  return struct.pack("<I6I2", time + low * 2^45, (total - low) / 8)
end

-- The log with `units` more that were taken at `taken`; entries from `first` on count.
local function late_log(state, first, before, past, newest, total, units, taken, stamp)
  if first == past then return log_word(taken % 2^45, units) .. struct.pack("<dd", taken, 0) end
  if taken >= stamp then
    local kept = string.sub(state, first * 8 - 7, taken == stamp and -25 or -17)
    return kept .. log_word((newest + taken - stamp) % 2^45, (total + units) % 2^19) .. struct.pack("<dd", taken, before)
  end
  local age = stamp - taken
  local index, earlier, time = first_entry(log_entry, state, first, past, before, false, newest, 2^45, age + 1)
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  if not time or (newest - time) % 2^45 ~= age then
    kept[2] = log_word((newest - age) % 2^45, (earlier + units) % 2^19)
  end
  for i = index, past - 1 do
    time, total = log_entry(state, i)
    kept[#kept + 1] = log_word(time, (total + units) % 2^19)
  end
  return table.concat(kept) .. struct.pack("<dd", stamp, before)
end
