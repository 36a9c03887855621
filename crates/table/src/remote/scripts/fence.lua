-- Makes sure that an attempt to write a row never succeeds any more, if the row is still as it was seen.
-- KEYS  1 meta · 2 rows · 3 fences
-- ARGV  1 epoch · 2 key · 3 token · 4 the head that was seen ("": no row)
-- Answers 1, or 0 when the row has changed.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return redis.error_reply('EPOCH another server, or another history of it')
end
local found = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if string.sub(found, 1, 8) ~= ARGV[4] then return 0 end
redis.call('HSET', KEYS[3], ARGV[3] .. ARGV[2], '')
return 1
