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
create table cl (a int primary key, b varchar(3), d date, f float8, z bool);
copy cl from stdin <- 1\tabcd\t\N\t\N\t\N\n
copy cl from stdin <- 1\tabc\t2020-13-01\t\N\t\N\n
copy cl from stdin <- 1\tabc\t\N\t1e999\t\N\n
copy cl from stdin <- 1\tabc\t\N\t\N\tmaybe\n
copy cl from stdin (format csv) <- 1,a,,,\n2,toolong,,,\n
copy cl from stdin (format csv) <- 1,a,,,\n\n
copy cl (a, b) from stdin (format csv) <- 3,"a\nb"\n4,"abcd"\n
copy cl (a, b) from stdin (format csv) <- 5,a\n6,b"x\n
copy cl (nosuch) from stdin <- 1\n
copy cl (a, a) from stdin <- 1\n
copy cl from stdin <- 1\ta\t\N\t\N\t\N\n\\.\n2\tb\n
select a, b from cl order by a;
drop table cl;
create table lines (a text);
copy lines from stdin <- a\rb\rc\r
copy lines from stdin (format csv) <- d\re\r"f\n"\r
copy lines from stdin <- g\r\nh\r\n
copy lines from stdin (format csv) <- i\r\n"j\r"\r\n
copy lines from stdin <- x\ny\rz\n
copy lines from stdin <- x\ny\r\n
copy lines from stdin <- x\r\ny\rz\r\n
copy lines from stdin <- x\r\ny\n
copy lines from stdin <- x\ry\n
copy lines from stdin (format csv) <- x\ny\rz\n
copy lines from stdin (format csv) <- x\ny\r\n
copy lines from stdin (format csv) <- x\r\ny\rz\r\n
copy lines from stdin (format csv) <- x\r\ny\n
copy lines from stdin (format csv) <- x\ry\n
copy lines from stdin (format csv) <- "x\r\n"\n"y\r\n"\nz\r\n
copy lines from stdin (format csv) <- "x\r\n"\r\n"y\r\n"\r\nz\n
copy lines from stdin (format csv) <- "x\r\n"\r"y\r\n"\rz\n
copy lines from stdin (format csv) <- x\n"y\nz
copy lines from stdin (format csv, header) <- "x\ny
copy lines from stdin <- k\n\.\nx\n
copy lines from stdin <- l\.\nx\n
copy lines from stdin <- m\r\\.\rx\r
copy lines from stdin <- n\r\.\rx\r
copy lines from stdin <- x\n\.\rz\n
copy lines from stdin <- x\r\n\.\nz\n
copy lines from stdin <- x\r\n\.\rz\n
copy lines from stdin <- x\n\.z\n
copy lines from stdin <- x\n\.
copy lines from stdin (format csv) <- o\n\.z\n\.
copy lines from stdin (format csv) <- p\r\n\.\nq\r\n
copy lines from stdin (format csv) <- p\n\.\nx\n
copy lines from stdin (format csv) <- x\n\.\rz\n
copy lines from stdin <- r\
select left(a, 1), length(a) from lines order by a;
drop table lines;
create table quoting (a text);
copy quoting to stdout (format csv, null '"');
copy quoting to stdout (format csv, null 'a|b', quote '|');
copy quoting to stdout (format csv, null '"', quote '''');
copy quoting to stdout (null '"');
copy quoting to stdout (null 'a|b', delimiter '|');
copy quoting to stdout (delimiter E'\n');
copy quoting from stdin (format csv, delimiter E'\r');
drop table quoting;
