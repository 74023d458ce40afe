-- raises: reads and changes the raises of single keys, for `tidegate keys raise`.
--
-- KEYS[1]  the text of all raises: a line with its version, then for each raise "LIMIT:KEY FACTOR END WHO", with the factor
--          in thousandths and the end in µs
-- ARGV[1]  now in µs, or "" for this server's own clock
-- ARGV[2]  ms to add to the TTL
-- ARGV[3]  "read", "start" or "end"
-- ARGV[4]  the limit and key of a raise that starts or ends, as "LIMIT:KEY"
-- ARGV[5]  its factor in thousandths, ARGV[6] its length in µs, ARGV[7] who starts it, ARGV[8] the most raises
-- Returns  a line with now in µs and then the text; or "full" if there are too many raises, or "none" if the raise that ends
--          does not exist

--@inline clock

local function whole(number)
  return string.format("%.0f", number)
end

local action, name = ARGV[3], ARGV[4]
local text = call("MGET", KEYS[1])[1] or ""
if action == "read" then return whole(now) .. "\n" .. text end

local version = tonumber(string.match(text, "^%d+")) or 0
-- Never one that a reader may know already, also after the text has expired.
local lines, latest, known = { whole(math.max(now, version + 1)) }, now, false
for line in string.gmatch(text, "[^\n]+") do
  local other, ends = string.match(line, "^(%S+) %d+ (%d+) ")
  ends = tonumber(ends)
  if other == name then
    known = known or ends > now
  elseif other and ends > now then
    lines[#lines + 1] = line
    latest = math.max(latest, ends)
  end
end
if action == "start" then
  if #lines > tonumber(ARGV[8]) then return "full" end
  local ends = now + ARGV[6]
  lines[#lines + 1] = name .. " " .. ARGV[5] .. " " .. whole(ends) .. " " .. ARGV[7]
  latest = math.max(latest, ends)
elseif not known then
  return "none"
end
if #lines == 1 then
  text = ""
  call("DEL", KEYS[1])
else
  text = table.concat(lines, "\n")
  call("SET", KEYS[1], text, "PX", whole(math.ceil((latest - now) / 1000) + 1 + ARGV[2]))
end
return whole(now) .. "\n" .. text
