-- log_refund: a function of sliding_log.lua that only refunds need. See there for the names.

-- The log without `cost` of the units of the entry that is `age` µs older than the newest, which counts as made at
-- `stamp`; nil if that entry no longer exists.
local function refund_log(state, first, before, past, newest, age, cost, stamp)
  if age < 0 or age >= 2^45 then return nil end
  local index, earlier, time, total =
    first_entry(log_entry, state, first, past, before, false, newest, 2^45, age + 1)
  if not time or (newest - time) % 2^45 ~= age then return nil end
  local spent = (total - earlier) % 2^19
  local back = math.min(spent, cost)
  if back == 0 then return nil end
  local from = back == spent and index + 1 or index
  local kept = { string.sub(state, first * 8 - 7, index * 8 - 8) }
  for i = from, past - 1 do
    time, total = log_entry(state, i)
    total = (total - back) % 2^19
    kept[#kept + 1] = struct.pack("<I6I2", time + total % 8 * 2^45, (total - total % 8) / 8)
  end
  local entries = table.concat(kept)
  if entries == "" then return "" end
  if from == past then time = log_entry(entries, #entries / 8) end
  return entries .. struct.pack("<dd", stamp - (newest - time) % 2^45, before)
end
