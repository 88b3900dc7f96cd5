create table c (a int primary key, b varchar(3), t timestamp);
copy c from stdin <- 1\tx\t\N\n2\ty\t2020-01-01\n
copy c from stdin <- 3\tx\t\N\nfour\ty\t\N\n
copy c from stdin <- 3\tlonger\t\N\n
copy c from stdin <- 3\tx\t\N\n4\ty\n
copy c from stdin <- 3\tx\t\N\textra\n
copy c from stdin <- 3\tx\tyesterday-ish\n
copy c from stdin <- 99999999999\tx\t\N\n
copy c from stdin (format csv) <- 3,x,\n"four",y,\n
copy c from stdin (format csv) <- 3,x,\n4,"y
copy c from stdin (format csv, header) <- a,b,t\n5,x,\n6,"y"\n
copy c (b, a) from stdin <- x\t7\ny\teight\n
copy c (a) from stdin <- aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhhiiiiiiiiiijjjjjjjjjjk\n
copy c (a) from stdin <- aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhhiiiiiiiiiijjjjjjjjjj\n
select * from c order by a;
drop table c;
