-- Puts the rows of a shard that were staged, and what is known of them, in their place, if nothing has happened since.
-- KEYS  1 meta · 2 hold · 3 deleted · then place and stage of the rows, and of everything else
-- ARGV  1 epoch · 2 loaded field · 3 since · 4 token of the hold · 5 epoch in which the stage was begun · 6 rows that were staged
--       then for each shard of a cluster in which values are reserved: field of its generation, generation, field of the newest reservation,
--       its number
-- Answers 1, or 0: it has to begin again.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'forgotten')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
if meta[1] ~= ARGV[5] or meta[2] or redis.call('GET', KEYS[2]) ~= ARGV[4] then return 0 end
if tonumber(meta[3] or '0') > tonumber(ARGV[3]) or redis.call('ZCOUNT', KEYS[3], '(' .. ARGV[3], '+inf') > 0 then return 0 end
if redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[6]) then return 0 end
local noted = {}
for i = 7, #ARGV, 4 do
  local known = redis.call('HMGET', KEYS[1], ARGV[i], ARGV[i + 2])
  if (known[1] or '') ~= ARGV[i + 1] then return 0 end
  if tonumber(ARGV[i + 3]) > tonumber(known[2] or '0') then noted[#noted + 1] = i + 2 end
end
for _, note in ipairs(noted) do redis.call('HSET', KEYS[1], ARGV[note], ARGV[note + 1]) end
for i = 4, #KEYS, 2 do
  redis.call('UNLINK', KEYS[i])
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    redis.call('RENAME', KEYS[i + 1], KEYS[i])
    redis.call('PERSIST', KEYS[i])
  end
end
return 1
