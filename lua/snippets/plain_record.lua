-- plain_record: leaves out the deadline behind a debt: what is written here has a lifetime of its own.
--
-- In   record; letter: of its algorithm
-- Out  record
if record and #record >= 32 and (letter == "b" or letter == "g") then
  local trailers = ({ [0] = 0, string.sub(record, -1) == "r" and 49 or 41, 90 })[#record % 8]
  if trailers and #record - trailers == 32 then record = string.sub(record, 1, 24) .. string.sub(record, 33) end
end
