-- Forgets the rows of one table in one shard.
-- KEYS  1 meta · 2 stream · 3… what goes
-- ARGV  1 epoch
-- Answers 1, or 0 when changes are not drained yet.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return redis.error_reply('EPOCH another server, or another history of it')
end
if redis.call('XLEN', KEYS[2]) > 0 then return 0 end
for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
