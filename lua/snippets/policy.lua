-- policy: reads all of a policy but its letter.
--
-- In   text: the policy
-- Out  options; ban: its numbers, or nil; span, share: of a policy that grants units, or nil; most: of one that settles costs, or
--      nil; numbers: those of the algorithm
local at, _ = POLICY + 1, nil
options = string.byte(text, 2)
if options % 2 == 1 then
  local after, within, length
  after, within, length, at = struct.unpack("<ddd", text, at)
  ban = { after = after, within = within, length = length }
end
if options % SETTLES >= GRANTS then span, share, at = struct.unpack("<dd", text, at) end
if options >= SETTLES then most, at = struct.unpack("<d", text, at) end
numbers = { struct.unpack("<" .. string.rep("d", (#text + 1 - at) / 8), text, at) }
-- struct.unpack also returns the position after what it has read.
numbers[#numbers] = nil
if most then numbers.most = most end
