-- Puts a row that was read from the database into memory, or takes away the stub of one that is not there any more; never in
-- place of anything newer. What was read holds every change up to `since`.
-- KEYS  1 meta · 2 rows · 3 deleted · 4 order · then one for each counter
-- ARGV  1 epoch · 2 loaded field · 3 key · 4 since · 5 the stub that was seen ("": none) · 6 the row ("": it is not there)
--       7 flags: s (shared) or -, o (ordered) or -, f (even when full) or - · 8 counters (number), then fingerprint, delta of each,
--       then for each other shard in which its values are reserved: field of its generation, generation, field of the newest
--       reservation, its number
-- Answers { "present", value }, { "gone" }, { "stale" } or { "full" }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'forgotten', 'full')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if not meta[2] then return redis.error_reply('NOTLOADED the shard is not loaded') end
local key, since, stub, row, flags = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local found = redis.call('HGET', KEYS[2], key)
if found and string.byte(found, 1) == 0 then return { 'present', found } end
local head = struct.pack('<BI7', 0, 0)
if found then
  if found ~= stub then return { 'stale' } end
  local _, version = struct.unpack('<BI7', found)
  if version > since then return { 'stale' } end
  head = struct.pack('<BI7', 0, version)
else
  if stub ~= '' then return { 'stale' } end
  if string.sub(flags, 1, 1) ~= 's' then return { 'gone' } end
  local deleted = redis.call('ZSCORE', KEYS[3], key)
  if deleted and tonumber(deleted) > since then return { 'gone' } end
  if tonumber(meta[3] or '0') > since then return { 'stale' } end
  if row == '' then return { 'gone' } end
end
local noted = {}
for i = 9 + 2 * tonumber(ARGV[8]), #ARGV, 4 do
  local known = redis.call('HMGET', KEYS[1], ARGV[i], ARGV[i + 2])
  if (known[1] or '') ~= ARGV[i + 1] then return { 'stale' } end
  if tonumber(ARGV[i + 3]) > tonumber(known[2] or '0') then noted[#noted + 1] = i + 2 end
end
local order = string.sub(flags, 2, 2) == 'o'
if row ~= '' then
  if meta[4] and string.sub(flags, 3, 3) ~= 'f' then return { 'full' } end
  for _, note in ipairs(noted) do redis.call('HSET', KEYS[1], ARGV[note], ARGV[note + 1]) end
  redis.call('HSET', KEYS[2], key, head .. row)
  if order then redis.call('ZADD', KEYS[4], 0, key) end
else
  redis.call('HDEL', KEYS[2], key)
  if order then redis.call('ZREM', KEYS[4], key) end
end
for i = 1, tonumber(ARGV[8]) do
  local value, delta = ARGV[7 + 2 * i], ARGV[8 + 2 * i]
  if redis.call('HINCRBY', KEYS[4 + i], value, delta) <= 0 then redis.call('HDEL', KEYS[4 + i], value) end
end
if row == '' then return { 'gone' } end
return { 'present', head .. row }
