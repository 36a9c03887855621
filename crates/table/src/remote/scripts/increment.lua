-- Adds to a bigint of a row in place, exactly: Lua's numbers are doubles, so that the sum is made of two halves of 32 bits.
-- KEYS  1 meta · 2 stream · 3 rows
-- ARGV  1 epoch · 2 loaded field · 3 key · 4 delta, 8 bytes little-endian · 5 bytes of the null bitmap · 6 the columns up to the
--       counter, one byte each: 1, 8, u (16 bytes) or v (LEB128 length, bytes) · 7 record
-- Answers the value as it is now, or { why }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'full')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if not meta[2] then return redis.error_reply('NOTLOADED the shard is not loaded') end
if meta[3] then return { 'full' } end
local found = redis.call('HGET', KEYS[3], ARGV[3])
if not found then return { 'missing' } end
if string.byte(found, 1) ~= 0 then return { 'stub' } end
local function is_null(index)
  local byte = string.byte(found, 9 + math.floor(index / 8)) or 255
  return math.floor(byte / 2 ^ (index % 8)) % 2 == 1
end
local widths = ARGV[6]
local at = 9 + tonumber(ARGV[5])
for index = 0, #widths - 2 do
  if not is_null(index) then
    local width = string.sub(widths, index + 1, index + 1)
    if width == '8' then at = at + 8
    elseif width == '1' then at = at + 1
    elseif width == 'u' then at = at + 16
    else
      local length, factor, byte = 0, 1, 128
      while byte >= 128 and factor <= 268435456 do
        byte = string.byte(found, at)
        if not byte then return { 'foreign' } end
        length = length + (byte % 128) * factor
        factor = factor * 128
        at = at + 1
      end
      at = at + length
    end
  end
end
if is_null(#widths - 1) then return found end
if at + 7 > #found then return { 'foreign' } end
local low, high = struct.unpack('<I4I4', string.sub(found, at, at + 7))
local delta_low, delta_high = struct.unpack('<I4I4', ARGV[4])
local sum_low = low + delta_low
local sum_high = high + delta_high
if sum_low >= 4294967296 then
  sum_low = sum_low - 4294967296
  sum_high = sum_high + 1
end
sum_high = sum_high % 4294967296
local negative, delta_negative, sum_negative = high >= 2147483648, delta_high >= 2147483648, sum_high >= 2147483648
if negative == delta_negative and sum_negative ~= negative then return { 'overflow' } end
local version = redis.call('HINCRBY', KEYS[1], 'n', '1')
redis.call('XADD', KEYS[2], string.format('%.0f-0', version), 'r', ARGV[7])
local value = struct.pack('<BI7', 0, version) .. string.sub(found, 9, at - 1)
  .. struct.pack('<I4I4', sum_low, sum_high) .. string.sub(found, at + 8)
redis.call('HSET', KEYS[3], ARGV[3], value)
return value
